"""What the host decides before an iteration: guards, counters, queues, rounds, and the numbers of a path."""

from __future__ import annotations

import math
from typing import Any

import pytest

from relaxc.attach.cohort import Cohort, Worker, launchers
from relaxc.attach.cohort_state import flat, moment, restore
from relaxc.attach.partners import Partners
from relaxc.manifest import (
    ControlPlan,
    ExchangePlan,
    FragmentPlan,
    KeptPlan,
    OperationPlan,
    PathPlan,
    ProgramPlan,
    StatePlan,
)
from relaxc.schedule.control import Control, Turn, Values
from relaxc.wire.draws import geometric

SEED = 99


def every(value: Any, parent: int = -1, block: int = 1, how: str = "number") -> ControlPlan:
    return ControlPlan("every", parent, block, how=how, value=value)


def phase(first: int, end: int | None, parent: int = -1, block: int = 1) -> ControlPlan:
    return ControlPlan("phase", parent, block, first=first, end=end)


def after(delay: int, parent: int = -1, block: int = 1) -> ControlPlan:
    return ControlPlan("land", parent, block, delay=delay)


def turns(*plan: ControlPlan, count: int = 12, states: dict[str, float] | None = None, head: int = 0) -> list[Turn]:
    control = Control(plan, states or {}, 3, SEED)
    if head:
        control.start_staggered(1, head)
    return [control.turn(t) for t in range(count)]


def on(found: list[Turn], guard: int = 0) -> list[int]:
    return [turn.t for turn in found if turn.truths[guard]]


def test_every_counts_the_iterations_in_which_control_reaches_it() -> None:
    assert on(turns(every(3.0))) == [2, 5, 8, 11]
    assert on(turns(every(3.0), every(2.0, parent=0, block=2)), 1) == [5, 11]
    assert on(turns(every(1.0))) == list(range(12))


def test_the_period_is_evaluated_each_time() -> None:
    assert on(turns(every(["where", ["<", "t", 4], 1, 3]))) == [0, 1, 2, 3, 6, 9]
    assert on(turns(every(["*", "workers", 2]))) == [5, 11]
    assert on(turns(every("gap"), states={"gap": 4.0})) == [3, 7, 11]


def test_a_staggered_block_starts_ahead() -> None:
    assert on(turns(every(4.0, how="staggered"), head=3)) == [0, 4, 8]
    assert on(turns(every(4.0, how="staggered"), head=1)) == [2, 6, 10]


def test_a_geometric_block_is_drawn_from_the_seed() -> None:
    found = on(turns(every(2.0, how="geometric", block=5), count=40))
    assert found == [n for n in range(40) if geometric(SEED, 5, n, 2.0)]
    assert 10 < len(found) < 30
    inner = on(turns(every(2.0), every(2.0, parent=0, block=2, how="geometric"), count=40), 1)
    assert inner == [2 * n + 1 for n in range(20) if geometric(SEED, 2, n, 2.0)]


def test_phases_follow_one_another() -> None:
    found = turns(phase(0, 3), phase(3, 5, block=2), phase(5, None, block=3), count=8)
    assert [on(found, g) for g in range(3)] == [[0, 1, 2], [3, 4], [5, 6, 7]]


def test_phases_within_a_block_count_its_runs() -> None:
    found = turns(every(2.0), phase(0, 2, parent=0, block=2), phase(2, None, parent=0, block=3))
    assert on(found, 1) == [1, 3]
    assert on(found, 2) == [5, 7, 9, 11]


def test_what_is_launched_lands_later_whether_or_not_its_block_runs() -> None:
    found = turns(every(3.0), after(2, parent=0, block=2))
    assert on(found, 1) == [4, 7, 10]
    assert [turn.rounds[2] for turn in found if turn.truths[1]] == [0, 1, 2], "the round is the launching run's"
    assert [turn.landing[1][1] for turn in found if turn.truths[1]] == [0, 1, 2]


def test_several_launches_under_way() -> None:
    found = turns(after(3), count=6)
    assert on(found) == [3, 4, 5]
    assert [turn.landing[0][0] for turn in found if turn.truths[0]] == [0, 1, 2]


def test_rounds_count_earlier_runs() -> None:
    found = turns(every(2.0), every(2.0, parent=0, block=2))
    assert [turn.rounds[0] for turn in found] == list(range(12))
    assert [turn.rounds[1] for turn in found if turn.truths[0]] == list(range(6))
    assert [turn.rounds[2] for turn in found if turn.truths[1]] == list(range(3))


def test_numbers_that_guards_depend_on() -> None:
    """`every gap { let next = rounds + 5  gap = next }  every gap { }`; whoever runs the path commits, here nobody."""
    plan = (
        every("gap"),
        ControlPlan("set", 0, name="next", value=["+", "rounds", 5]),
        ControlPlan("set", 0, name="gap", value="next"),
        every("gap", block=2),
    )
    found = turns(*plan, states={"gap": 2.0, "rounds": 0.0}, count=6)
    assert on(found, 0) == [1, 3, 5]
    assert on(found, 1) == [2, 4], "the second block reads what the first one has set"


def test_a_path_s_numbers_are_evaluated_when_asked_for() -> None:
    asked: list[str] = []

    class Noted(dict[str, float]):
        def __getitem__(self, name: str) -> float:
            asked.append(name)
            return super().__getitem__(name)

    values = Values([("a", ["+", "t", 1]), ("b", ["*", "a", "lr"])], Noted(t=4.0, lr=0.5))
    assert values["a"] == 5 and asked == ["t"]
    assert values["b"] == 2.5 and values["b"] == 2.5 and asked == ["t", "lr"]


# --- cohorts


def path(guards: tuple[bool, ...], **fields: Any) -> PathPlan:
    return PathPlan(
        guards, fields.pop("numbers", ()), fields.pop("states", ()), fields.pop("stages", {}), True, **fields
    )


def program(**fields: Any) -> ProgramPlan:
    made = {
        "states": (),
        "control": (),
        "transfers": (),
        "kept": (),
        "fragments": (),
        "start": (),
        "paths": (path(()),),
    }
    return ProgramPlan(**{**made, **fields}, settings=())


def number(name: str, initial: Any) -> StatePlan:
    return StatePlan(name, "number", initial)


def run(cohort: Cohort, count: int) -> None:
    for _ in range(count):
        cohort.open()
        cohort.settle()
        cohort.commit()


def test_number_states_are_committed_at_the_end_of_an_iteration() -> None:
    plan = program(
        states=(number("x", ["+", "workers", 0.5]),),
        paths=(path((), numbers=(("x@1", ["*", "x", 2]), ("x@2", ["+", "x@1", "t"])), states=(("x", "x@2"),)),),
    )
    cohort = Cohort(plan, (), None, Worker(1, 3, SEED))
    assert cohort.numbers == {"x": 3.5}
    run(cohort, 2)
    assert cohort.numbers == {"x": 2 * (2 * 3.5 + 0) + 1}


def test_no_number_becomes_non_finite() -> None:
    plan = program(
        states=(number("x", 4.0),), paths=(path((), numbers=(("x@1", ["/", "x", "t"]),), states=(("x", "x@1"),)),)
    )
    cohort = Cohort(plan, (), None, Worker(0, 1, SEED))
    run(cohort, 3)
    assert cohort.numbers == {"x": 4.0 / 2} and math.isfinite(cohort.numbers["x"])


def capturing() -> ProgramPlan:
    """`let a = t  after 2 { x = a }`"""
    guards = (after(2, block=1),)
    states = (("x", "late.a"),)
    captures = ((1, "late.a", "t"),)
    return program(
        states=(number("x", -1.0),),
        control=guards,
        paths=(path((False,), captures=captures), path((True,), states=states, captures=captures)),
    )


def test_a_landing_reads_the_numbers_of_its_launch() -> None:
    cohort = Cohort(capturing(), (), None, Worker(0, 1, SEED))
    run(cohort, 2)
    assert cohort.numbers == {"x": -1.0}
    run(cohort, 4)
    assert cohort.numbers == {"x": 3.0}, "t = 5 lands what was launched at 3"
    assert len(cohort.captured) == 2, "what has landed is forgotten"


def test_a_snapshot_goes_on_where_it_was() -> None:
    plan = capturing()
    straight, other = (Cohort(plan, (), None, Worker(0, 1, SEED)) for _ in range(2))
    run(straight, 3)
    saved = flat(moment(straight))
    run(other, 1)
    restore(other, saved)
    assert flat(moment(other)) == saved
    for cohort in (straight, other):
        run(cohort, 4)
    assert flat(moment(straight)) == flat(moment(other))


def test_copies_follow_the_launches() -> None:
    """A value kept for two launches that can be under way: each landing finds its own."""
    reads = FragmentPlan((), (), (), None, None, ("kept.0",), "update")
    stage = {"after": (OperationPlan("compute", 0, False, ""),)}
    plan = program(
        control=(every(2.0), after(3, parent=0, block=2)),
        kept=(KeptPlan("tensor", 2),),
        fragments=(reads,),
        paths=tuple(path((a, b), stages=stage if b else {}) for a in (True, False) for b in (True, False)),
    )
    assert launchers(plan) == {"kept.0": 1}
    cohort = Cohort(plan, (), None, Worker(0, 1, SEED))
    written, read = [], []
    for _ in range(12):
        cohort.open()
        if cohort.turn.truths[0]:
            written.append(cohort.copy("kept.0", late=False))
        if cohort.turn.truths[1]:
            read.append(cohort.copy("kept.0", late=True))
        cohort.commit()
    assert written == [0, 1, 0, 1, 0, 1] and read == [0, 1, 0, 1]


def mix_over(topology: Any) -> ExchangePlan:
    return ExchangePlan("mix", 0, "", topology, "none", None, False, ())


@pytest.mark.parametrize("rank", range(3))
def test_partners_of_a_fixed_topology(rank: int) -> None:
    partners = Partners(mix_over(["ring", []]), 3, rank, SEED)
    assert not partners.changing and partners.round_of(7) == 0
    meeting = partners.meet(4)
    assert meeting.sources == (0, 1, 2) and meeting.targets == tuple(r for r in range(3) if r != rank)
    assert meeting.weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))


def test_partners_of_a_directed_topology_that_changes() -> None:
    """Those that a worker sends to are those that hear it."""
    for round in range(3):
        met = [Partners(mix_over(["one_peer_exponential", []]), 5, rank, SEED).meet(round) for rank in range(5)]
        for rank, meeting in enumerate(met):
            assert rank in meeting.sources and len(meeting.sources) == len(meeting.weights) == 2
            assert all(rank in met[peer].sources for peer in meeting.targets)
    assert Partners(mix_over(["one_peer_exponential", []]), 5, 0, SEED).changing
