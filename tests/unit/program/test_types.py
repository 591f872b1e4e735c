"""The typing rules as tables: shapes and agreement of each form, and what a body's weights come to."""

from __future__ import annotations

import pytest

from relaxc import pipeline
from relaxc.language import library
from relaxc.language.diagnostics import SpecError
from relaxc.language.source import Source
from relaxc.program.agreement import Agreement, agreement_of, agreements_of
from relaxc.program.checks.lateness import stable_below
from relaxc.program.facts import facts_of
from relaxc.program.ir import (
    Apply,
    Body,
    Codec,
    Constant,
    Decode,
    Encode,
    Exchange,
    Expression,
    Optimizer,
    Own,
    Read,
    Reduce,
    State,
)  # fmt: skip
from relaxc.program.lower import lower
from relaxc.program.shapes import Form, Shape, form_of, forms_of
from relaxc.program.types import typed
from relaxc.topology.kinds import TOPOLOGIES, refusal, spread
from relaxc.topology.spectrum import smallest_eigenvalue
from relaxc.topology.topology import Topology
from relaxc.wire.layout import Field, Layout, WireType

STATIC, REPLICATED, LOCAL = Agreement
RING = Topology("ring")


def codec(dithers: bool) -> Codec:
    layout = Layout(512, (Field("level", WireType("int", 8), per_element=True),))
    return Codec("c", layout, (), Read("level"), dithers)


FORMS = {"s": Form(Shape.NUMBER), "c": Form(Shape.CELL), "x": Form(Shape.TENSOR), "q": Form(Shape.CODE),
         "lr": Form(Shape.NUMBER, late=True)}  # fmt: skip
AGREEMENTS = {"s": STATIC, "r": REPLICATED, "l": LOCAL, "optimizer": REPLICATED}


def exchange(kind: str, value: str) -> Exchange:
    return Exchange(kind, Read(value), None, "none", "", RING if kind == "mix" else None, 0)


@pytest.mark.parametrize(
    ("e", "shape", "late"),
    [
        (Constant(1.0), "number", False), (Read("s"), "number", False), (Read("lr"), "number", True),
        (Own(RING), "number", False), (Optimizer("eps", tensor=False), "number", True),
        (Optimizer("exp_avg", tensor=True), "tensor", True), (Apply("+", (Read("s"), Read("c"))), "cell", False),
        (Apply("where", (Read("s"), Read("c"), Read("x"))), "tensor", False),
        (Apply("*", (Read("lr"), Read("x"))), "tensor", True), (Reduce("norm", Read("x")), "cell", False),
        (exchange("mean", "x"), "tensor", False), (exchange("mix", "q"), "tensor", False),
        (exchange("mix", "s"), "cell", False), (Encode(Read("x"), codec(dithers=False), 0), "code", False),
        (Decode(Read("q")), "tensor", False),
    ],
)  # fmt: skip
def test_shapes(e: Expression, shape: str, late: bool) -> None:
    form = form_of(e, FORMS)
    assert (str(form.shape), form.late) == (shape, late)


@pytest.mark.parametrize(
    ("e", "agreement"),
    [
        (Constant(1.0), STATIC), (Read("s"), STATIC), (Read("r"), REPLICATED), (Own(RING), LOCAL),
        (Optimizer("eps", tensor=False), REPLICATED), (Optimizer("exp_avg", tensor=True), REPLICATED),
        (Apply("+", (Read("s"), Read("r"))), REPLICATED), (Apply("max", (Read("l"), Read("r"))), LOCAL),
        (Reduce("norm", Read("r")), REPLICATED), (exchange("mean", "l"), REPLICATED), (exchange("sum", "l"), REPLICATED),
        (exchange("mix", "r"), LOCAL), (Encode(Read("r"), codec(dithers=False), 0), REPLICATED),
        (Encode(Read("r"), codec(dithers=True), 0), LOCAL), (Decode(Encode(Read("l"), codec(dithers=False), 0)), LOCAL),
    ],
)  # fmt: skip
def test_agreement(e: Expression, agreement: Agreement) -> None:
    assert agreement_of(e, AGREEMENTS) is agreement


def bodies(text: str) -> tuple[Body, ...]:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {})).bodies


def body_of(statements: str) -> Body:
    (body,) = bodies(f"algorithm a() {{ {statements} }}\nrelax with a")
    return body


@pytest.mark.parametrize(
    ("states", "shapes"),
    [
        ("state a = 0 state b = 0 step a += 1 b += a weight += b", "number number"),
        ("state a = 0 step a += weight weight = mean(a)", "tensor"),
        ("state a = 0 state b = 0 step a = b b = norm(weight) weight *= a", "cell cell"),
        ("state a = 0 state b = 0 state c = 0 step a = b b = c c = grad weight = mean(a)", "tensor tensor tensor"),
        ("state a = weight step weight = mean(a)", "tensor"),
        ("state a = 0 step every 2 { a = t } weight += a", "number"),
    ],
)
def test_the_shape_of_a_state_is_the_join_of_all_it_is_given(states: str, shapes: str) -> None:
    assert " ".join(state.shape for state in body_of(states).states) == shapes


def test_a_state_is_late_through_others() -> None:
    body = body_of("state a = 0 state b = 0 step b = a a += lr weight += b")
    assert forms_of(body)["b"] == Form(Shape.NUMBER, late=True)
    assert isinstance(body.states[0], State)


@pytest.mark.parametrize(
    ("statements", "word"),
    [
        ("grad = mean(grad) step", "replicated"),
        ("grad = delay(mean(grad), 2) step", "replicated"),
        ("grad = mean(grad, compress = 1bit) step", "replicated"),
        ("grad = mix(grad, ring) step weight = mix(weight, ring)", "local"),
        ("step", "local"),
        ("every 4 { grad = mean(grad) } step", "local"),
        ("every 4 { let late = mean(grad) after 2 { grad = late } } step", "replicated"),
        ("step weight = mean(weight)", "replicated"),
        ("step weight = mix(weight, complete)", "local"),
        ("step every 4 { weight = mean(weight) }", "runs"),
        ("step every geometric(4) { weight = mean(weight) }", "runs"),
        ("step every 4 { weight = mix(weight, ring) }", "local"),
        ("state a = weight step every 4 { a = mean(weight) weight = a }", "runs"),
        (
            "state a = weight step every 4 { let d = mean(a - weight) after 2 { weight = 0.5 * weight + 0.5 * (a - d) } }",
            "local",
        ),
        ("grad = mean(grad) weight -= lr * grad * optimizer.exp_avg", "replicated"),
        ("grad = mean(grad) weight -= rank * grad", "local"),
        (
            "state m = 0 phase a for 5 { grad = mean(grad) m = grad } phase b { m = mean(grad) } weight -= lr * m",
            "replicated",
        ),
        ("state m = 0 phase a for 5 { grad = mean(grad) m = grad } phase b { m = grad } weight -= lr * m", "local"),
        ("state m = 0 m = mean(grad) every 3 { m = grad } weight -= lr * m", "local"),
        ("state c = weight every 4 { let a = weight - c weight -= a / 2 c += mean(a) } step", "local"),
    ],
)
def test_weights_at_the_end_of_an_iteration(statements: str, word: str) -> None:
    facts = facts_of(body_of(statements))
    assert (facts.agreement, facts.consensus) == (word, word != "replicated")


def test_phases_are_entered_with_what_the_one_before_left() -> None:
    found = agreements_of(
        body_of("phase together for 9 { grad = mean(grad) } step phase apart { every 8 { weight = mean(weight) } }")
    )
    assert found.weight == {"together": REPLICATED, "apart": LOCAL} and found.word == "runs"
    back = agreements_of(body_of("phase apart for 9 { grad *= 2 } phase together { grad = mean(grad) } step"))
    assert back.weight == {"apart": LOCAL, "together": LOCAL}


@pytest.mark.parametrize(
    ("statements", "late"),
    [
        ("grad = mean(grad) step", 0), ("grad = delay(mean(grad), 3) step", 3),
        ("step every 9 { let d = mean(weight) after 2 { weight += 0 * d after 3 { weight += 0 * d } } }", 5),
        ("step every 9 { let d = mean(weight) after 2 { weight += 0 * d after 3 { weight *= 1 } } }", 2),
        ("step every 9 { after 2 { weight += mean(weight) - weight } }", 0),
        ("step every 9 { after 2 { let d = mean(weight) weight += d - weight } }", 0),
    ],
)  # fmt: skip
def test_staleness(statements: str, late: int) -> None:
    text = f"algorithm a() {{ {statements} }}\nrelax with a"
    (body,) = lower(pipeline.to_spec(Source("spec", text), {})).bodies
    assert facts_of(body).staleness == late


def test_the_stability_bound() -> None:
    """By simulation of x(t + 1) = x(t) - z x(t - k): just below the bound it dies out, just above it grows."""
    for delay in range(6):
        for factor, grows in ((0.97, False), (1.03, True)):
            z = stable_below(delay) * factor
            x = [1.0] * (delay + 1)
            for _ in range(4000):
                x.append(x[-1] - z * x[-1 - delay])
            assert (max(map(abs, x[-100:])) > 1) == grows


@pytest.mark.parametrize(
    "name", sorted(name for name, kind in TOPOLOGIES.items() if not kind.wraps and name != "edges")
)
def test_no_worker_count_has_a_smaller_eigenvalue_than_said(name: str) -> None:
    topology = Topology(name)
    spreads = [1 - smallest_eigenvalue(topology, n) for n in (*range(2, 18), 32, 64) if refusal(topology, n) is None]
    assert max(spreads) <= spread(topology) + 1e-9
    assert name == "arrows" or spread(topology) - max(spreads) < 0.35, "it says more than any number of workers has"
    assert spread(Topology("lazy", (topology,))) == spread(topology) / 2
    assert spread(Topology("shuffled", (topology,))) == spread(topology)


@pytest.mark.parametrize("name", ["ring", "star", "complete", "exponential", "random_pairs"])
def test_machines_have_no_smaller_eigenvalue_than_said(name: str) -> None:
    """A machine's workers agree at once, which is an eigenvalue of 0."""
    for outer in (Topology(name), Topology("lazy", (Topology(name),))):
        topology = Topology("hierarchy", (outer, 2))
        spreads = [1 - smallest_eigenvalue(topology, n) for n in (2, 4, 6, 8, 16)]
        assert max(spreads) <= spread(topology) + 1e-9
        assert spread(topology) == max(1.0, spread(outer))


DOUBTS = {"gossipgrad": ["RX0332"]}
"""GossipGraD is gradients that are mixed and never averaged, and its comment says what that means."""


@pytest.mark.parametrize("name", library.specs())
def test_shipped_specs_raise_no_doubt(name: str) -> None:
    spec = library.spec(name)
    assert spec is not None
    assert [d.code for d in typed(pipeline.to_spec(spec.source, {})).warnings] == DOUBTS.get(name, [])


def test_codecs_that_nobody_uses_are_lowered_too() -> None:
    """What only a codec's arguments decide is for lowering to find."""
    text = "codec c() { per block(512) let b = max(x) send a: f32 = b receive = a * b }\nrelax gradients"
    with pytest.raises(SpecError) as caught:
        typed(pipeline.to_spec(Source("spec", text), {}))
    assert [d.code for d in caught.value.diagnostics] == ["RX0234"]


def test_what_nobody_runs_is_checked_too_and_mistakes_are_told_once() -> None:
    text = "algorithm a() { grad = mean(grad) }\nrelax with a for ndim < 2\nrelax with a"
    for spec in (text, "algorithm a() { grad = mean(grad) }\nrelax gradients"):
        with pytest.raises(SpecError) as caught:
            typed(pipeline.to_spec(Source("spec", spec), {}))
        assert {d.code for d in caught.value.diagnostics} == {"RX0316"}
    with pytest.raises(SpecError) as caught:
        typed(pipeline.to_spec(Source("spec", text.replace("}", "  step grad = grad }")), {}))
    assert [d.code for d in caught.value.diagnostics] == ["RX0312"]
