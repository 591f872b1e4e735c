"""The verifier sees each kind of broken route: a verifier that never objects proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.ir import (
    After,
    Assign,
    Body,
    Constant,
    Decode,
    Every,
    Exchange,
    Let,
    Program,
    Read,
    State,
    Statement,
    Step,
)  # fmt: skip
from relaxc.program.ir import (
    Phase as Stage,
)
from relaxc.program.verify import VerifyError, verify, verify_gather, verify_route
from relaxc.topology.kinds import TOPOLOGIES
from relaxc.topology.topology import Topology
from relaxc.wire.machines import hierarchy
from relaxc.wire.routes import ROUTES, Kernel, Message, Move, Phase, Receive, Route, Run, Send

FEEDBACKS = ("none", "worker", "both")
Change = Callable[[int, Move], Move | None]


@pytest.mark.parametrize("kind", ["mean", "sum"])
@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("route", [*ROUTES.values(), *map(hierarchy, range(2, 9))], ids=lambda r: f"{r.name}-{r.inner}")
def test_the_shipped_routes_hold(route: Route, feedback: str, kind: str) -> None:
    verify_route(route, feedback, route.kernels(feedback, kind), kind)


def test_a_sum_that_is_divided_is_seen() -> None:
    with pytest.raises(VerifyError, match="divided"):
        verify_route(ROUTES["all"], "none", ROUTES["all"].kernels("none", "mean"), "sum")


GRAPHS = [
    Topology(name, (Topology("ring"),) if kind.wraps else ()) for name, kind in TOPOLOGIES.items() if name != "edges"
]


@pytest.mark.parametrize("workers", range(1, 10))
@pytest.mark.parametrize("topology", GRAPHS, ids=str)
def test_every_neighbour_is_heard_once(topology: Topology, workers: int) -> None:
    verify_gather(topology, workers)


def test_a_mix_that_loses_a_message_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("relaxc.program.verify.receivers", lambda *_: ())
    with pytest.raises(VerifyError, match="waits for a message"):
        verify_gather(Topology("ring"), 3)


# --- programs


def program(statements: tuple[Statement, ...], states: tuple[State, ...] = ()) -> Program:
    return Program((Body(None, states, statements),))


def mean(place: int = 0, value: str = "grad", **changes: object) -> Exchange:
    return replace(Exchange("mean", Read(value), None, "none", "all", None, place), **changes)  # type: ignore[arg-type]


def test_what_lowering_makes_holds() -> None:
    spec = pipeline.to_spec(Source("spec", "relax with choco for ndim < 2\nrelax with one_bit_adam"), {})
    verify(pipeline.to_program(spec))


PERIOD = Constant(2.0)
BROKEN: dict[str, tuple[tuple[Statement, ...], tuple[State, ...]]] = {
    "unknown name": ((Let("a", Read("b")),), ()),
    "is a second one": ((Let("a", Read("t")), Let("a", Read("t"))), ()),
    "assignment to unknown": ((Assign("a", Read("t")),), ()),
    "a period reads an unknown": ((Every(1, "number", Read("b"), ()),), ()),
    "another shape": ((Assign("s", Read("grad")),), (State("s", Constant(0.0), "number"),)),
    "two blocks share": ((Every(1, "number", PERIOD, ()), Stage(1, "a", 0, None, ())), ()),
    "less than one iteration": ((After(1, 0, ()),), ()),
    "never on": ((Stage(1, "a", 3, 3, ()),), ()),
    "no period": ((Every(1, "often", PERIOD, ()),), ()),
    "two steps": ((Step(), Every(1, "number", PERIOD, (Step(),))), ()),
    "share a place": ((Assign("grad", mean()), Assign("grad", mean())), ()),
    "overlaps": ((Assign("grad", mean(place=1)),), ()),
    "is no code": ((Assign("weight", Decode(Read("grad"))),), ()),
    "feedback without": ((Assign("grad", mean(feedback="both")),), ()),
    "on route": ((Assign("grad", mean(route="by sea")),), ()),
    "finding its partners": ((Assign("grad", mean(kind="mix", route="")),), ()),
    "a mix without": ((Assign("grad", mean(kind="mix", route="", topology=Topology("ring"))),), ()),
    "no exchange": ((Assign("grad", mean(kind="gossip")),), ()),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_program_is_seen(what: str) -> None:
    with pytest.raises(VerifyError, match=what):
        verify(program(*BROKEN[what]))


def test_steps_in_different_phases_are_on_different_paths() -> None:
    phases = (Stage(1, "a", 0, 5, (Step(),)), Stage(2, "b", 5, None, (Step(),)))
    verify(program(phases))
    with pytest.raises(VerifyError, match="two steps"):
        verify(program((*phases, Step())))
    with pytest.raises(VerifyError, match="two steps"):
        verify(program((phases[0], Stage(2, "a", 0, 5, (Step(),)))))


# --- broken routes


def altered(route: Route, change: Change) -> Route:
    """`route` with `change(rank, move)` applied to each move; None drops it."""

    def phases(rank: int, workers: int) -> tuple[Phase, ...]:
        kept = ((change(rank, move) for move in phase) for phase in route.phases(rank, workers))
        return tuple(tuple(m for m in phase if m is not None) for phase in kept)

    return replace(route, phases=phases)


def drop_a_send(rank: int, move: Move) -> Move | None:
    return None if rank == 1 and isinstance(move, Send) else move


def drop_a_receive(rank: int, move: Move) -> Move | None:
    return None if rank == 1 and isinstance(move, Receive) else move


def one_leg(_rank: int, move: Move) -> Move:
    return replace(move, leg=0) if isinstance(move, (Send, Receive)) else move


def never_decode(_rank: int, move: Move) -> Move | None:
    return None if isinstance(move, Run) and move.kernel in ("spread", "gather") and move.chunk == 0 else move


CHANGES = [(r, c) for r in ROUTES.values() for c in (drop_a_send, drop_a_receive, one_leg, never_decode)]


@pytest.mark.parametrize(("route", "change"), [(r, c) for r, c in CHANGES if not (r.whole and c is one_leg)])
def test_a_route_that_loses_or_mixes_up_messages_is_seen(route: Route, change: Change) -> None:
    with pytest.raises((VerifyError, KeyError)):
        verify_route(altered(route, change), "both", route.kernels("both"))


def fixed_owner(rank: int, move: Move) -> Move | None:
    """Worker 0's own combine claims to be of chunk 1."""
    return replace(move, chunk=1) if isinstance(move, Run) and move.kernel == "combine" and rank == 0 else move


def beyond_the_legs(_rank: int, move: Move) -> Move:
    return replace(move, leg=move.leg + 1) if isinstance(move, (Send, Receive)) else move


def two_inputs(_rank: int, move: Move) -> Move:
    again = isinstance(move, Run) and move.kernel == "spread"
    return replace(move, inputs=move.inputs * 2) if again else move  # type: ignore[union-attr,call-arg]


@pytest.mark.parametrize(
    ("change", "what"),
    [(fixed_owner, "as owner"), (beyond_the_legs, "beyond its number of legs"), (two_inputs, "other inputs")],
)
def test_a_route_that_the_runtime_could_not_carry_is_seen(change: Change, what: str) -> None:
    with pytest.raises(VerifyError, match=what):
        verify_route(altered(ROUTES["all"], change), "both", ROUTES["all"].kernels("both"))


def regrouped(route: Route, group: Callable[[int, tuple[Phase, ...]], tuple[Phase, ...]]) -> Route:
    return replace(route, phases=lambda rank, workers: group(rank, route.phases(rank, workers)))


def test_phases_that_could_wait_in_a_circle_are_seen() -> None:
    route, kernels = ROUTES["all"], ROUTES["all"].kernels("none")
    with pytest.raises(VerifyError, match="phase of its sending"):
        verify_route(regrouped(route, lambda _, phases: (sum(phases, ()),)), "none", kernels)
    with pytest.raises(VerifyError, match="different numbers of phases"):
        verify_route(regrouped(route, lambda rank, phases: phases + ((),) * rank), "none", kernels)


def everyone_sums(rank: int, workers: int) -> tuple[Phase, ...]:
    """Every worker sends its contribution to all and each sums for itself: the same numbers, in bits of its own."""
    peers = [(rank + d) % workers for d in range(1, workers)]
    scatter: list[Move] = []
    gather: list[Move] = []
    for chunk in range(workers):
        made = Message(0, chunk)
        scatter.append(Run("contribute", chunk, output=made))
        scatter += [Send(made, rank, peer, chunk) for peer in peers]
        gather += [Receive(made, peer, peer, chunk) for peer in peers]
        total = Message(1, chunk)
        gather.append(Run("join", chunk, tuple((w, made) for w in range(workers)), total))
        gather.append(Run("spread", chunk, ((rank, total),)))
    return tuple(scatter), tuple(gather)


def test_workers_that_each_sum_for_themselves_are_seen() -> None:
    contribute, _, spread = ROUTES["all"].kernels("none")
    join = Kernel("join", "many", tensor=False, averages=True, residual=False, owner=False)
    route = replace(ROUTES["all"], phases=everyone_sums, legs=lambda n: n)
    with pytest.raises(VerifyError, match=r"different bits|used dither key"):
        verify_route(route, "none", (contribute, join, spread))


def without(kernels: tuple[Kernel, ...], name: str, **changes: bool) -> tuple[Kernel, ...]:
    return tuple(replace(k, **changes) if k.name == name else k for k in kernels)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("route", "kernel", "changes", "what"),
    [
        ("all", "combine", {"averages": False}, "not divided"),
        ("all", "combine", {"tensor": True}, "added twice"),
        ("all", "contribute", {"tensor": False}, "lost"),
        ("all", "contribute", {"residual": False}, "does not say"),
        ("ring", "hop", {"tensor": False}, "lost"),
        ("ring", "hop", {"averages": True}, "summed again"),
        ("ring", "hop", {"residual": False}, "does not say"),
        ("ring", "finish", {"averages": False}, "not divided"),
    ],
)
def test_a_kernel_that_computes_something_else_is_seen(
    route: str, kernel: str, changes: dict[str, bool], what: str
) -> None:
    kernels = without(ROUTES[route].kernels("both"), kernel, **changes)
    with pytest.raises(VerifyError, match=what):
        verify_route(ROUTES[route], "both", kernels)


@pytest.mark.parametrize(
    ("kernel", "changes", "what"),
    [
        ("give", {"makes_exact": False}, "another layout"),
        ("lead", {"takes_exact": False}, "another layout"),
        ("add", {"averages": True}, "summed again"),
        ("lead", {"residual": False}, "does not say"),
        ("give", {"residual": True}, "does not say"),
        ("combine", {"averages": False}, "not divided"),
        ("settle", {"averages": False}, "not divided"),
        ("add", {"tensor": True}, "added twice"),
    ],
)
def test_a_kernel_of_a_hierarchy_that_computes_something_else_is_seen(
    kernel: str, changes: dict[str, bool], what: str
) -> None:
    route = hierarchy(2)
    with pytest.raises(VerifyError, match=what):
        verify_route(route, "both", without(route.kernels("both"), kernel, **changes))


def test_more_roundings_than_stated_are_seen() -> None:
    route = replace(ROUTES["ring"], roundings=lambda n: n - 1)
    with pytest.raises(VerifyError, match="roundings"):
        verify_route(route, "none", route.kernels("none"))
