"""Where straight lines are cut, and what goes from one fragment to the next."""

from __future__ import annotations

from relaxc.language.check import check
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.ir import Apply, Constant, Expression, Let, Optimizer, Read, Reduce, State
from relaxc.program.lower import lower
from relaxc.program.passes.paths import to_paths
from relaxc.program.passes.start import start_fragments
from relaxc.program.paths import Fragment, Path, PathBody, Store

WEIGHT, GRAD, ARRIVED, CODED = Read("weight"), Read("grad"), Read("arrived"), Read("coded")


def body(text: str) -> PathBody:
    return to_paths(lower(check(parse(Source("spec", text)), {}))).bodies[0]


def algorithm(statements: str, states: str = "") -> PathBody:
    return body(f"algorithm a() {{ {states}\n {statements} }} relax with a")


def computed(made: PathBody, path: Path | None = None) -> list[Fragment]:
    """The fragments of a path in order."""
    chosen = made.paths[0] if path is None else path
    return [made.fragments[o.number] for _, operations in chosen.stages for o in operations if o.kind == "compute"]


def plus(a: Expression, b: Expression) -> Apply:
    return Apply("+", (a, b))


def minus(a: Expression, b: Expression) -> Apply:
    return Apply("-", (a, b))


def times(a: Expression, b: Expression) -> Apply:
    return Apply("*", (a, b))


def finite(new: Expression, old: str) -> Apply:
    return Apply("finite", (new, Read(old)))


def test_choco_is_one_fragment_on_each_side_of_its_exchange() -> None:
    send, receive = computed(body("relax with choco { gamma = 0.5 }"))
    assert send == Fragment((), (Store("seen", plus(Read("seen"), CODED)),), sends=0, value=minus(WEIGHT, Read("seen")))
    around = Read("around@1")
    moved = plus(WEIGHT, times(Constant(0.5), minus(around, Read("seen"))))
    assert receive == Fragment(
        (Let("around@1", finite(plus(Read("around"), ARRIVED), "around")),),
        (Store("around", around), Store("weight", moved)),
        receives=0,
    )


def test_one_bit_adam_updates_in_the_fragment_that_receives() -> None:
    made = body("relax with one_bit_adam { b1 = 0.5, b2 = 0.5, eps = 1 }")
    dense, compressed = made.paths
    half = Constant(0.5)
    fresh = plus(times(half, Read("m")), times(half, GRAD))

    send, receive = computed(made, compressed)
    assert (send.sends, send.value, send.stores) == (1, fresh, ())
    assert receive.receives == 1
    assert receive.lets == (Let("m@1", finite(ARRIVED, "m")),)
    assert [s.target for s in receive.stores] == ["m", "weight"]
    step = Apply("/", (times(Read("lr"), Read("m@1")), plus(Apply("sqrt", (Read("v"),)), Constant(1.0))))
    assert receive.stores[1].value == minus(WEIGHT, step)

    share, land, update = computed(made, dense)
    assert share.stores == (Store("slot.0", GRAD),)
    assert land.stores == (Store("grad", times(Read("slot.0"), Read("number.0"))),)
    assert update.lets[0] == Let(
        "v@1", finite(plus(times(half, Read("v")), times(half, Apply("^", (GRAD, Constant(2.0))))), "v")
    )
    assert [s.target for s in update.stores] == ["v", "m", "weight"]


def test_what_the_optimiser_overwrites_is_kept() -> None:
    before, send, receive = computed(algorithm("let old = weight  step  weight = mix(2 * weight - old, ring)"))
    assert before.stores == (Store("kept.0", WEIGHT),)
    assert send.value == minus(times(Constant(2.0), WEIGHT), Read("kept.0"))
    assert receive.stores == (Store("weight", ARRIVED),)


def test_what_memory_still_holds_is_read_again() -> None:
    made = algorithm("step  let far = weight - b  weight = mix(weight, ring) + far", "state b = weight")
    _, receive = computed(made)
    assert made.kept == ()
    assert receive.stores == (Store("weight", plus(ARRIVED, minus(WEIGHT, Read("b")))),)


def test_of_many_lost_operands_the_value_is_kept() -> None:
    made = algorithm("let u = weight * optimizer.exp_avg + a  step  a = 0  weight += u", "state a = weight")
    keeping, using = computed(made)
    assert keeping.stores == (Store("kept.0", plus(times(WEIGHT, Optimizer("exp_avg", tensor=True)), Read("a"))),)
    assert set(using.stores) == {Store("a", Constant(0.0)), Store("weight", plus(WEIGHT, Read("kept.0")))}


def test_a_state_is_stored_late_rather_than_kept() -> None:
    """`a` is known before the exchange, but what lands needs the old one."""
    made = algorithm("step  let old = a  a = 2 * a  weight = mix(weight, ring) + old", "state a = weight")
    send, receive = computed(made)
    assert made.kept == ()
    assert send.stores == ()
    assert {s.target for s in receive.stores} == {"a", "weight"}


def test_a_value_is_rounded_and_finite_where_it_is_read_again() -> None:
    (both,) = computed(algorithm("step  weight = 2 * weight  a = a + weight  b = a", "state a = weight state b = 0"))
    assert both.lets == (
        Let("weight@1", Apply("stored", (times(Constant(2.0), WEIGHT),))),
        Let("a@1", finite(plus(Read("a"), Read("weight@1")), "a")),
    )
    assert both.stores == (Store("weight", Read("weight@1")), Store("a", Read("a@1")), Store("b", Read("a@1")))


def test_a_fragment_sends_one_code() -> None:
    made = algorithm("step  let u = mix(weight, ring)  let y = mix(a, ring)  weight = u  a = y", "state a = weight")
    assert [(f.sends, f.receives) for f in computed(made)] == [(1, None), (0, None), (None, 0), (None, 1)]


def test_a_code_that_is_exchanged_twice_is_encoded_twice() -> None:
    made = algorithm("step  let q = encode(weight, 8bit)  let u = mix(q, ring)  weight = u - decode(q) + mean(q)")
    senders = [f for f in computed(made) if f.sends is not None]
    assert [f.value for f in senders] == [WEIGHT, WEIGHT]
    assert {t.exchange.place for t in made.transfers} == {made.transfers[0].exchange.place}


def test_near_is_the_own_value_of_the_code() -> None:
    near = "codec plain() { send a: uint(8) = mod(x, 256) receive near y = y + wrap(a - y, 256) }\n"
    text = "algorithm a() { let q = encode(weight, plain)  weight += mix(q, ring) - decode(q)  step }\nrelax with a"
    send, receive = computed(body(near + text))
    assert (receive.receives, receive.near) == (0, WEIGHT)
    assert send.stores == ()


def test_the_own_code_is_decoded_again_where_all_that_arrive_are() -> None:
    """Rather than kept: it is a message like the others."""
    made = algorithm("let q = encode(weight, 8bit)  weight += mix(q, ring) - decode(q)  step")
    send, receive = computed(made)
    assert send.stores == () and made.kept == ()
    moved = Apply("-", (ARRIVED, Read("own_coded")))
    assert receive.stores[0].value == Apply("+", (WEIGHT, moved))


def test_what_is_checked_before_it_is_decoded_is_near_the_slot() -> None:
    made = algorithm("let q = encode(weight, modulo(8bit))  weight += mix(q, ring) - decode(q)  step")
    assert [(t.leaves, t.lands) for t in made.transfers] == [("code", "code")]
    send, use = computed(made)
    assert send.stores == (Store("slot.0", WEIGHT),)
    assert (use.receives, use.near) == (0, Read("slot.0"))


def test_a_codec_with_states_leaves_when_its_iteration_has_come() -> None:
    """As with a loss that is fed back: what an iteration begins with would change before it is saved."""
    text = "let q = encode(weight, modulo(8bit, unit = {}))  weight += mix(q, ring) - decode(q)  step"
    begins = [bool(algorithm(text.format(unit)).paths[0].stage("begin")) for unit in ("0.01", "auto")]
    assert begins == [True, False]


def test_near_of_what_lands_late_waits_in_the_slot() -> None:
    made = algorithm("step  let q = encode(weight, modulo(8bit))  let u = mix(q, ring)  after 2 { weight = u }")
    (transfer,) = made.transfers
    assert (transfer.leaves, transfer.lands) == ("code", "slot")
    send, land = computed(made, next(p for p in made.paths if p.guards == (True,)))
    assert send.stores == (Store("slot.0", WEIGHT),)
    assert land.late == ("slot.0",)


def test_what_a_landing_computes_with_is_kept_at_the_launch() -> None:
    made = algorithm("step  every 3 { weight += delay(mix(weight, ring) - weight, 2) }")
    launching = next(p for p in made.paths if p.guards == (True, False))
    landing = next(p for p in made.paths if p.guards == (False, True))
    (send,), (land,) = computed(made, launching), computed(made, landing)
    assert send.stores == (Store("kept.0", WEIGHT),)
    assert land.stores == (Store("weight", plus(WEIGHT, minus(Read("slot.0"), Read("kept.0")))),)
    assert land.late == ("kept.0", "slot.0")


def test_launch_and_landing_of_one_iteration_are_two_fragments() -> None:
    made = algorithm("step  every 2 { let own = 2 * weight  after 2 { weight += own } }")
    launch, land = computed(made, next(p for p in made.paths if p.guards == (True, True)))
    assert (launch.stores[0].target, land.late) == ("kept.0", ("kept.0",))


def test_the_largest_number_is_one_number() -> None:
    made = algorithm("m = 0.5 * m + grad  weight -= lr / (1 - 0.5 ^ (t + 1)) * m", "state m = 0")
    (update,) = computed(made)
    assert update.stores[-1] == Store("weight", minus(WEIGHT, times(Read("number.0"), Read("m@1"))))
    power = Apply("^", (Constant(0.5), plus(Read("t"), Constant(1.0))))
    assert made.paths[0].numbers == (("number.0", Apply("/", (Read("lr"), minus(Constant(1.0), power)))),)


def test_number_states_have_a_name_for_each_value() -> None:
    made = algorithm("n += 1  a = n * grad  n = 2 * n  weight -= n * a", "state n = 0  state a = weight")
    assert [name for name, _ in made.paths[0].numbers] == ["n@1", "n@2"]
    assert made.paths[0].states == (("n", "n@2"),)
    (update,) = computed(made)
    assert update.lets[0].value == finite(times(Read("n@1"), GRAD), "a")


def test_norms_are_measured_on_their_own() -> None:
    measure, apply = computed(algorithm("step  weight -= 0.1 * weight / norm(weight - a)", "state a = weight"))
    assert measure == Fragment(
        (Let("norm.0", Reduce("norm", minus(WEIGHT, Read("a")))),), (Store("kept.0", Read("norm.0")),), measures=True
    )
    assert Read("kept.0") in apply.stores[0].value.arguments[1].arguments  # type: ignore[union-attr]


def test_the_same_arithmetic_is_one_fragment_for_all_paths() -> None:
    made = algorithm("step  every 2 { a = a + weight }  weight = mix(weight, ring)", "state a = 0")
    receivers = {o.number for p in made.paths for _, s in p.stages for o in s if made.fragments[o.number].receives == 0}
    assert len(receivers) == 1


def test_states_start_from_those_before_them() -> None:
    states = (
        State("n", Constant(2.0), "number"),
        State("a", WEIGHT, "tensor"),
        State("c", Reduce("norm", Read("a")), "cell"),
        State("b", times(Read("c"), Read("a")), "tensor"),
        State("d", plus(Read("b"), Read("n")), "tensor"),
    )
    assert start_fragments(states) == [
        Fragment((), (Store("a", WEIGHT),)),
        Fragment((), (Store("c", Reduce("norm", Read("a"))),), measures=True),
        Fragment(
            (Let("b@1", times(Read("c"), Read("a"))),),
            (Store("b", Read("b@1")), Store("d", plus(Read("b@1"), Read("n")))),
        ),
    ]
