"""The verifier sees each kind of broken route: a verifier that never objects proves nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from relaxc.program.verify import VerifyError, verify_route
from relaxc.wire.routes import ROUTES, Kernel, Message, Move, Phase, Receive, Route, Run, Send

FEEDBACKS = ("none", "worker", "both")
Change = Callable[[int, Move], Move | None]


@pytest.mark.parametrize("feedback", FEEDBACKS)
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_the_shipped_routes_hold(route: Route, feedback: str) -> None:
    verify_route(route, feedback, route.kernels(feedback))


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
    return None if isinstance(move, Run) and move.kernel == "spread" and move.chunk == 0 else move


@pytest.mark.parametrize("change", [drop_a_send, drop_a_receive, one_leg, never_decode])
@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
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


def test_more_roundings_than_stated_are_seen() -> None:
    route = replace(ROUTES["ring"], roundings=lambda n: n - 1)
    with pytest.raises(VerifyError, match="roundings"):
        verify_route(route, "none", route.kernels("none"))
