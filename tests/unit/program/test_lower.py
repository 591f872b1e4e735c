"""What a statement stands for: bodies by hand, arguments put in, numbers folded, places and blocks numbered."""

from __future__ import annotations

import pytest

from relaxc import pipeline
from relaxc.language import library
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Constant,
    Encode,
    Every,
    Exchange,
    Let,
    Phase,
    Program,
    Read,
    Step,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.lower import lower
from relaxc.program.printer import print_program
from relaxc.topology.topology import Topology


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def body_of(statements: str, parameters: str = "", use: str = "") -> Body:
    (body,) = program(f"algorithm a({parameters}) {{ {statements} }}\nrelax with a {use}").bodies
    return body


MINMAX = "minmax(bits = 8, block = 512, rounding = nearest)"
EXPANSIONS = {
    "relax gradients": "  grad = mean(grad, compress = none, feedback = none, route = all)\n  step\n",
    "relax gradients { compress = 8bit }": f"  grad = mean(grad, compress = {MINMAX}, feedback = both, route = all)\n  step\n",
    "relax gradients { compress = bf16, topology = ring }":
        "  grad = mean(grad, compress = bf16, feedback = none, route = ring)\n  step\n",
    "relax gradients { route = ring }": "  grad = mean(grad, compress = exact, feedback = none, route = ring)\n  step\n",
    "relax gradients { delay = 2 }":
        "  let fresh = mean(grad, compress = none, feedback = none, route = all)\n"
        "  after 2 {\n    grad = fresh\n  }\n  step\n",
    "relax weights":
        "  step\n  weight += mix(weight, ring, compress = exact, feedback = none) - weight\n",
    "relax weights { topology = torus, every = 4 }":
        "  step\n  every 4 {\n    weight += mix(weight, torus, compress = exact, feedback = none) - weight\n  }\n",
    "relax weights { topology = lazy(ring), every = 2, delay = 3 }":
        "  step\n  every 4 {\n    let fresh = mix(weight, lazy(ring), compress = exact, feedback = none) - weight\n"
        "    after 3 {\n      weight += fresh\n    }\n  }\n",
    "relax weights { compress = 8bit }":
        f"  state seen = 0\n  state around = 0\n  step\n  let change = encode(weight - seen, {MINMAX})\n"
        "  let heard = mix(change, ring)\n  seen += decode(change)\n  around += heard\n"
        "  weight += 0.4 * (around - seen)\n",
    "relax updates { every = 20 }":
        "  state anchor = weight\n  state velocity = 0\n  step\n  every 20 {\n"
        "    let drift = mean(anchor - weight, compress = none, feedback = none, route = all)\n"
        "    velocity = 0.9 * velocity + drift\n    anchor -= 0.7 * (drift + 0.9 * velocity)\n    weight = anchor\n  }\n",
}  # fmt: skip


@pytest.mark.parametrize("spec", EXPANSIONS)
def test_the_printed_expansion(spec: str) -> None:
    printed = print_program(program(spec))
    assert printed == f"# governs every parameter\nalgorithm body0() {{\n{EXPANSIONS[spec]}}}\n"


@pytest.mark.parametrize("name", library.specs())
def test_what_is_printed_is_the_same_program(name: str) -> None:
    """It parses, and what it stands for is printed alike."""
    spec = library.spec(name)
    assert spec is not None
    printed = print_program(program(spec.source.text))
    bodies = len(parse(Source("printed", printed)).items)
    uses = "\n".join(f'relax with body{n} for "{n}"' for n in range(bodies))
    again = print_program(program(f"{printed}\n{uses}\n"))
    assert [line for line in again.splitlines() if line[:1] != "#"] == [
        line for line in printed.splitlines() if line[:1] != "#"
    ]


def test_native_gradients_have_their_form() -> None:
    (at_once,) = program("relax gradients { compress = 8bit }").bodies
    exchange = at_once.statements[0].value  # type: ignore[union-attr]
    assert at_once.statements == (Assign("grad", exchange), Step())
    assert isinstance(exchange, Exchange) and exchange.value == Read("grad") and exchange.route == "all"
    (late,) = program("relax gradients { delay = 2 }").bodies
    let, after, step = late.statements
    assert isinstance(let, Let) and isinstance(let.value, Exchange)
    assert after == After(1, 2, (Assign("grad", Read(let.name)),)) and step == Step()


def test_selectors_become_plain_data() -> None:
    bodies = program('param few = 3\nrelax gradients for "a.*" and not ndim < few\nrelax gradients').bodies
    assert bodies[0].selector == ("and", ("name", "a.*"), ("not", ("<", "ndim", 3)))
    assert bodies[1].selector is None


def test_places_do_not_overlap() -> None:
    text = 'algorithm a(c = 8bit) { step let q = encode(weight, c) weight += mix(q, ring) - decode(q) }\nrelax with a for "x"'
    bodies = program(f"{text}\nrelax gradients").bodies
    parts = [e for b in bodies for s in flattened(b.statements) if isinstance(s, Let | Assign) for e in within(s.value)]
    assert [e.place for e in parts if isinstance(e, Encode | Exchange)] == [0, 2, 4]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1 + 2 * 3", 7.0), ("2 ^ 3 ^ 2", 512.0), ("-2 ^ 2", -4.0), ("(1 + b) / 4", 0.5), ("10%", 0.1), ("8bit", 8.0),
        ("min(b, 3) + max(2, 5)", 6.0), ("where(b < 2, 7, 9)", 7.0), ("round(2.5)", 2.0), ("wrap(5, 4)", 1.0),
        ("not (b > 2) and b == 1", 1.0),
    ],
)  # fmt: skip
def test_constants_are_folded(written: str, value: float) -> None:
    body = body_of(f"step weight = mean(weight) * ({written})", "b = 3", "{ b = 1 }")
    product = body.statements[1].value  # type: ignore[union-attr]
    assert isinstance(product, Apply) and product.arguments[1] == Constant(value)


def test_updates_are_written_out() -> None:
    body = body_of("step weight -= lr * weight")
    assert body.statements[1] == Assign(
        "weight", Apply("-", (Read("weight"), Apply("*", (Read("lr"), Read("weight")))))
    )


def test_blocks_are_numbered_and_what_always_runs_is_none() -> None:
    body = body_of(
        "step every 1 { weight *= 0.5 } every 2 { after 0 { weight *= 0.5 } after 3 { weight *= 0.5 } } "
        "every geometric(4) { weight = mean(weight) } every staggered(5) { weight = mean(weight) }"
    )
    half = body.statements[1]
    assert isinstance(half, Assign)
    _, _, two, random, apart = body.statements
    assert isinstance(two, Every) and (two.block, two.how, two.period) == (1, "number", Constant(2.0))
    assert two.body == (half, After(2, 3, (half,)))
    assert isinstance(random, Every) and (random.block, random.how, random.period) == (3, "geometric", Constant(4.0))
    assert isinstance(apart, Every) and (apart.block, apart.how) == (4, "staggered")


def test_phases_follow_one_another() -> None:
    body = body_of(
        "phase one for 10 { grad = mean(grad) } phase none_of_it for 0 { grad = 2 * grad } phase two for n { grad = mean(grad) } step "
        "phase one { weight *= 0.5 } phase rest { weight *= 0.25 }",
        "n = 20",
    )
    phases = [s for s in body.statements if isinstance(s, Phase)]
    assert [(p.name, p.first, p.end) for p in phases] == [
        ("one", 0, 10), ("two", 10, 30), ("one", 0, 10), ("rest", 30, None),
    ]  # fmt: skip
    assert len({p.block for p in phases}) == 4


def test_phases_stay_in_their_block() -> None:
    body = body_of("step phase a for 3 { weight *= 0.5 } every 1 { phase b for 2 { weight = mean(weight) } }")
    _, first, block = body.statements
    assert isinstance(first, Phase) and isinstance(block, Every) and block.period == Constant(1.0)
    assert [(p.name, p.first, p.end) for p in block.body if isinstance(p, Phase)] == [("b", 0, 2)]


def test_lets_of_one_name_are_told_apart() -> None:
    body = body_of("step every 2 { let a = mean(weight) weight = a } every 3 { let a = 2 * weight weight = mean(a) }")
    lets = [s for s in flattened(body.statements) if isinstance(s, Let)]
    assert [let.name for let in lets] == ["a", "a_2"]
    assert body.statements[2].body[1].value.value == Read("a_2")  # type: ignore[union-attr]


def test_two_delays_of_one_length_land_together() -> None:
    body = body_of("step every 9 { weight += delay(mean(weight), 2) - delay(weight, 2) }")
    first, second, after = body.statements[1].body  # type: ignore[union-attr]
    assert isinstance(first, Let) and isinstance(second, Let) and first.name != second.name
    moved = Apply("-", (Read(first.name), Read(second.name)))
    assert after == After(2, 2, (Assign("weight", Apply("+", (Read("weight"), moved))),))


@pytest.mark.parametrize(
    ("codec", "written", "feedback"),
    [
        ("8bit", "auto", "both"), ("1bit", "auto", "both"), ("bf16", "auto", "none"), ("qsgd(4)", "auto", "none"),
        ("minmax(8, rounding = stochastic)", "auto", "none"), ("8bit", "worker", "worker"), ("8bit", "none", "none"),
        ("none", "auto", "none"), ("qsgd(4)", "both", "both"),
    ],
)  # fmt: skip
def test_feedback(codec: str, written: str, feedback: str) -> None:
    body = body_of(f"grad = mean(grad, compress = {codec}, feedback = {written}) step")
    assert body.statements[0].value.feedback == feedback  # type: ignore[union-attr]


def test_topologies_are_values() -> None:
    body = body_of(
        "step weight = mix(weight, topology) * own(lazy(topology))", "topology = ring", "{ topology = torus }"
    )
    parts = list(within(body.statements[1].value))  # type: ignore[union-attr]
    assert [getattr(e, "topology", None) for e in parts if hasattr(e, "topology")] == [
        Topology("torus"), Topology("lazy", (Topology("torus"),)),
    ]  # fmt: skip


def test_places_in_the_text_are_the_users() -> None:
    text = "relax with choco { topology = torus, gamma = 0.3 }\n"
    (body,) = program(text).bodies
    spans = [s.span for s in flattened(body.statements)]
    assert all(span is not None and span.source.text == text for span in spans)
    mixes = [s for s in flattened(body.statements) if isinstance(s, Assign) and s.name == "around"]
    assert [s.span.text for s in mixes if s.span] == ["torus"]


def test_division_by_zero_is_the_specs_mistake() -> None:
    with pytest.raises(SpecError) as caught:
        body_of("step weight = mean(weight) / (n - 1)", "n = 4", "{ n = 1 }")
    assert [d.code for d in caught.value.diagnostics] == ["RX0208"]


def test_lowering_is_deterministic() -> None:
    spec = pipeline.to_spec(Source("spec", "relax gradients { compress = 1bit }"), {})
    assert lower(spec) == lower(spec)


@pytest.mark.parametrize(
    ("arguments", "route", "feedback"),
    [
        ("compress = topk(1%)", "gather", "worker"),
        ("compress = dct(8, 4), feedback = both", "gather", "worker"),
        ("compress = topk(1%), route = auto, feedback = none", "gather", "none"),
        ("compress = randomk(1%)", "all", "both"),
        ("compress = 8bit, route = gather, feedback = both", "gather", "worker"),
        ("compress = 8bit, route = auto", "all", "both"),
        ("route = gather", "gather", "none"),
        ("route = auto", "all", "none"),
    ],
)
def test_what_is_not_encoded_again_is_gathered(arguments: str, route: str, feedback: str) -> None:
    body = body_of(f"grad = mean(grad, {arguments}) step")
    (found,) = (e for s in body.statements if isinstance(s, Assign) for e in within(s.value) if isinstance(e, Exchange))
    assert (found.route, found.feedback) == (route, feedback)
    assert program(print_program(Program((body,))).split("\n", 1)[1] + "\nrelax with body0").bodies[0].statements
