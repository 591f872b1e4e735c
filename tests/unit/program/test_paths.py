"""Which paths a body has, what is native, and that the published algorithms mean the same as paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from drawn_programs import check_agreement
from path_runner import PathRunner

from relaxc.language import library
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.ir import Apply, Constant, Program, Read
from relaxc.program.lower import lower
from relaxc.program.passes.paths import to_paths
from relaxc.program.passes.verify_paths import verify_paths
from relaxc.program.paths import Operation, PathBody, Paths, SetNumber, Store
from relaxc.program.verify import VerifyError
from relaxc.wire.parameters import Parameter


def program(text: str) -> Program:
    return lower(check(parse(Source("spec", text)), {}))


def body(text: str) -> PathBody:
    return to_paths(program(text)).bodies[0]


def algorithm(statements: str, states: str = "") -> str:
    return f"algorithm a() {{ {states}\n {statements} }} relax with a"


# --- native gradients


@pytest.mark.parametrize("delay", [0, 2])
def test_the_mean_of_gradients_is_native_and_leaves_no_paths(delay: int) -> None:
    made = body(f"relax gradients {{ compress = 8bit, delay = {delay} }}")
    assert made.gradient is not None
    assert (made.gradient.delay, made.gradient.exchange.kind) == (delay, "mean")
    assert (made.paths, made.fragments, made.transfers) == ((), (), ())


def test_what_stands_behind_a_native_mean_is_paths() -> None:
    made = body(algorithm("grad = mean(grad)  m = 0.9 * m + grad  weight -= lr * m", "state m = 0"))
    assert made.gradient is not None
    assert [(name, len(operations)) for name, operations in made.paths[0].stages] == [("after", 1)]


@pytest.mark.parametrize("first", ["grad = sum(grad)", "grad = mean(2 * grad)", "phase p { grad = mean(grad) }"])
def test_any_other_exchange_of_gradients_is_generic(first: str) -> None:
    made = body(algorithm(f"{first}  step"))
    assert made.gradient is None
    assert [name for name, _ in made.paths[0].stages] == ["backward"]


# --- guards


def test_phases_exclude_one_another() -> None:
    phases = "phase one for 3 { a = grad }  step  phase two for 4 { a = weight }  phase three { a = 2 }"
    made = body(algorithm(phases, "state a = weight"))
    assert {path.guards for path in made.paths} == {(True, False, False), (False, True, False), (False, False, True)}


def test_a_landing_is_free_and_the_blocks_inside_of_one_that_does_not_run_do_not() -> None:
    made = body(algorithm("step  every 3 { let d = mean(weight)  after 2 { every 2 { weight += d - weight } } }"))
    assert [(g.kind, g.parent) for g in made.control] == [("every", -1), ("land", 0), ("every", 1)]  # type: ignore[union-attr]
    every, lands, inner = zip(*(path.guards for path in made.paths), strict=True)
    assert len(made.paths) == 6
    assert not any(i and not land for i, land in zip(inner, lands, strict=True))
    assert any(land and not e for e, land in zip(every, lands, strict=True))


def test_numbers_that_guards_depend_on_are_part_of_control() -> None:
    text = "step  let next = 2 * gap  n += 1  idle += 1  every gap { gap = next + n  weight = mean(weight) }"
    made = body(algorithm(text, "state gap = 1  state n = 0  state idle = 0"))
    assert [(s.name, s.guard) for s in made.control if isinstance(s, SetNumber)] == [
        ("next", -1),
        ("n", -1),
        ("gap", 0),
    ]


def test_at_most_64_paths() -> None:
    everies = " ".join(f"every {n} {{ a += weight }}" for n in range(2, 9))
    with pytest.raises(SpecError) as error:
        body(algorithm(f"step {everies}", "state a = 0"))
    assert error.value.diagnostics[0].code == "RX0340"
    assert error.value.diagnostics[0].message == "too many combinations of every, phase and after: 128; at most 64"
    made = body(algorithm(f"step {everies.partition('every 3')[0]}", "state a = 0"))
    assert len(made.paths) == 2


def test_the_count_of_combinations_is_the_number_of_paths() -> None:
    blocks = "step every 2 { a += 1 every 3 { let d = mean(weight) after 2 { every 5 { a += d } } } phase x for 3 { a += 2 } }"
    found = len(body(algorithm(blocks, "state a = weight")).paths)
    more = f"every 7 {{ a = a + 1 }} every 11 {{ a = a + 2 }} every 13 {{ a = a + 3 }} {blocks}"
    with pytest.raises(SpecError, match=f": {8 * found};"):
        body(algorithm(more, "state a = weight"))


# --- copies


@pytest.mark.parametrize(
    ("every", "late", "copies"), [("every 5", 5, 2), ("every 5", 4, 1), ("every 2", 5, 3), ("every geometric(9)", 2, 3)]
)
def test_copies_are_as_many_as_launches_can_be_under_way(every: str, late: int, copies: int) -> None:
    made = body(
        algorithm(
            f"step  {every} {{ let own = 2 * weight  let d = mean(weight)  after {late} {{ weight = d + own }} }}"
        )
    )
    assert [t.copies for t in made.transfers] == [copies]
    assert [(k.copies, k.after) for k in made.kept] == [(copies, 2)]


# --- meaning


SHORT = {
    "choco": "", "dcd_psgd": "", "dpsgd": "", "dpsgd_atc": "", "swarm_blocking": "{ period = geometric(2) }",
    "diloco": "{ period = 3 }", "local_sgd": "{ period = 3 }", "one_bit_adam": "{ warmup = 4 }",
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
@pytest.mark.parametrize(("workers", "dtype"), [(1, "f32"), (2, "f64"), (3, "bf16"), (4, "f32")])
def test_published_algorithms(name: str, workers: int, dtype: str) -> None:
    assert name in library.specs()
    check_agreement(program(f"relax with {name} {SHORT[name]}"), workers, 5, dtype)


ALGORITHMS = {
    "streaming diloco": (
        ("step every staggered(4) { let drift = mean(anchor - weight, compress = 4bit) after 2 { v = 0.9 * v + drift"
        " anchor -= 0.7 * (drift + 0.9 * v) weight = 0.5 * weight + 0.5 * anchor } }"),
        "state anchor = weight state v = 0",
    ),
    "zero one adam": (
        ("let fresh = grad m = 0.9 * m + 0.1 * fresh weight -= lr * m / sqrt(v + 0.1) moved += lr * m rates += lr"
        " every where(t < 4, 1, min(4, 2 ^ floor((t - 4) / 3))) { let total = mean(moved, compress = 1bit, feedback = both)"
        " m = total / rates anchor -= total / sqrt(v + 0.1) weight = anchor moved = 0 rates = 0 }"
        " every gap { v = 0.9 * v + 0.1 * mean(fresh) ^ 2 rounds += 1 gap = 2 ^ floor(rounds / 2) }"),
        "state m = 0 state v = 0 state moved = 0 state rates = 0 state anchor = weight state gap = 1 state rounds = 0",
    ),
    "d2": (
        ("let before = weight step let update = weight - before weight = mix(weight + fix, lazy(ring))"
        " fix = weight - before - update"),
        "state fix = 0",
    ),
    "gradient tracking": (
        "track = mix(track, ring) + grad - last last = grad grad = track step weight = mix(weight, ring)",
        "state track = 0 state last = 0",
    ),
    "slowmo": (
        "step every 3 { slow = 0.5 * slow + (anchor - mean(weight)) / lr anchor -= lr * slow weight = anchor }",
        "state anchor = weight state slow = 0",
    ),
    "easgd": (
        "every 2 { let stretch = weight - center weight -= 0.1 * stretch center += 0.1 * sum(stretch) } step",
        "state center = weight",
    ),
    "deepsqueeze": (
        ("step let wanted = weight + error let code = encode(wanted, 4bit) error = wanted - decode(code)"
        " weight += 0.1 * (mix(code, ring) - decode(code))"),
        "state error = 0",
    ),
    "delayed weights": ("every 3 { weight += delay(mix(weight, ring) - weight, 2) } step", ""),
    "modulo with feedback": ("step weight = mix(weight, ring, compress = modulo(8bit))", ""),
    "modulo that follows": (
        "let code = encode(weight, modulo(8bit, unit = auto)) weight += mix(code, ring) - decode(code) step", ""
    ),
    "modulo that follows, with feedback": (
        "step weight = mix(weight, ring, compress = modulo(8bit, unit = auto), feedback = worker)", ""
    ),
    "delayed modulo that follows": (
        ("step every 3 { let code = encode(weight, modulo(4bit, unit = auto)) let own = decode(code)"
        " let heard = mix(code, random_pairs) after 2 { weight += heard - own } }"),
        "",
    ),
    "delayed modulo": (
        ("step every 2 { let code = encode(weight, modulo(8bit)) let own = decode(code) let heard = mix(code, random_pairs)"
        " after 1 { weight += heard - own } }"),
        "",
    ),
    "a captured number": ("let rate = lr * (t + 1) let d = mix(weight, ring) - weight after 2 { weight += rate * d } step", ""),
    "clipping": ("grad = mean(grad) / max(1, norm(grad)) step c = 0.9 * c + norm(weight) weight -= 0.1 * weight / c",
                 "state c = 1"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize(("workers", "dtype"), [(1, "f64"), (2, "bf16"), (4, "f32")])
def test_further_algorithms(name: str, workers: int, dtype: str) -> None:
    check_agreement(program(algorithm(*ALGORITHMS[name])), workers, 3, dtype)


def test_captured_numbers_are_handed_over() -> None:
    path = body(algorithm(*ALGORITHMS["a captured number"])).paths[0]
    assert path.captures == ((1, "late.rate", Read("rate")),)


# --- refusals and verification


def test_a_code_is_exchanged_where_it_is_decoded() -> None:
    text = algorithm("step let q = encode(weight, 8bit) weight = decode(q) every 2 { weight += mix(q, ring) }")
    with pytest.raises(SpecError) as error:
        body(text)
    assert error.value.diagnostics[0].code == "RX0343"
    assert error.value.diagnostics[0].labels


def test_a_codec_with_states_has_one_exchange_under_way() -> None:
    """What several bring would change the state in an order that depends on the wire."""
    text = (
        "step every {} {{ let q = encode(weight, modulo(8bit, unit = auto)) let own = decode(q) let m = mix(q, ring)"
        " after 2 {{ weight += (m - own) / 8 }} }}"
    )
    with pytest.raises(SpecError) as error:
        body(algorithm(text.format(2)))
    assert error.value.diagnostics[0].code == "RX0368" and error.value.diagnostics[0].labels
    body(algorithm(text.format(3)))


def broken(made: PathBody, **changes: object) -> PathBody:
    return replace(made, **changes)  # type: ignore[arg-type]


def test_verification_finds_what_a_pass_could_break() -> None:
    made = body("relax with choco")
    send, receive = (f for f in made.fragments if f.sends is not None or f.receives is not None)
    start = made.fragments[made.start[0]]
    stages = dict(made.paths[0].stages)
    finish, apply = stages["tail"]
    cases = [
        broken(made, fragments=(start, replace(send, receives=0), receive)),
        broken(made, fragments=(start, replace(send, stores=(Store("nowhere", Constant(0.0)),)), receive)),
        broken(made, fragments=(start, send, replace(receive, stores=(Store("weight", Read("kept.0")),)))),
        broken(made, fragments=(start, send, replace(receive, receives=None))),
        broken(made, paths=(replace(made.paths[0], stages=(("after", stages["after"]),)),)),
        broken(made, paths=(replace(made.paths[0], stages=(("after", stages["after"]), ("tail", (apply, finish)))),)),
        broken(made, paths=(replace(made.paths[0], stages=(("tail", (finish, apply)),)),)),
        broken(made, paths=(replace(made.paths[0], stages=(*made.paths[0].stages, ("x", (Operation("start", 0),)))),)),
        broken(made, paths=(replace(made.paths[0], numbers=(("n", Constant(1.0)), ("n", Constant(2.0)))),)),
        broken(made, paths=(replace(made.paths[0], states=(("n", "n@1"),)),)),
    ]
    verify_paths(Paths((made,)))
    for case in cases:
        with pytest.raises(VerifyError):
            verify_paths(Paths((case,)))


# --- closed forms


def test_a_mix_on_two_workers_is_their_mean() -> None:
    """With one half of each, whatever the ring: 1 and 3 meet at 2, and stay there."""

    class Still:
        def step(self, worker: int, parameter: Parameter, weight: object, grad: object) -> object:
            return weight

    parameter = Parameter(0, "p", (3,), "f32")
    runner = PathRunner(to_paths(program("relax with dpsgd")), [parameter], 2, optimizer=Still())  # type: ignore[arg-type]
    for worker, value in enumerate((1.0, 3.0)):
        runner.weights[worker][0][:] = value
    runner.iterate([[None], [None]])
    assert [w[0].tolist() for w in runner.weights] == [[2.0] * 3] * 2


def test_an_uncompressed_mean_divides_its_sum() -> None:
    made = body("relax with local_sgd { period = 3 }")
    (store,) = (s for f in made.fragments for s in f.stores if s.target == "weight")
    assert isinstance(store.value, Apply)
    number = dict(next(p for p in made.paths if p.guards == (True,)).numbers)
    assert number == {"number.0": Apply("/", (Constant(1.0), Read("workers")))}
    assert store.value.arguments[1] == Read("number.0")
