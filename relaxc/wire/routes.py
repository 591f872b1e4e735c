"""Routes as data: what each worker computes, sends and receives for one piece, phase by phase.

For a mean or a sum a piece is cut into one chunk per worker: chunk c is what worker c owns of it (ownership.py). A
route is a function of (rank, workers) that returns phases; a phase is a list of moves in order (moves.py).
Interpreter, verifier, schedule and, through the schedule, the C++ runtime all execute these same lists. What a route
means is defined once more, without messages, in program/exchange.py, which they are held against.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from relaxc.wire.machines import hierarchy
from relaxc.wire.moves import WHEN, Kernel, Message, Move, Phase, Receive, Route, Run, Send

WEIGHTED = frozenset({"mix", "push"})
"""Exchanges that add up what the neighbours in a topology send, each times its weight."""
NEIGHBOURLY = WEIGHTED | {"relay"}
"""Exchanges with the neighbours in a topology; all others are with everyone."""


__all__ = ["WHEN", "Kernel", "Message", "Move", "Phase", "Receive", "Route", "Run", "Send"]


def _kernels_all(feedback: str) -> tuple[Kernel, ...]:
    worker, both = feedback in ("worker", "both"), feedback == "both"
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=worker, owner=False, contributes=True),
        Kernel("combine", "many", tensor=False, averages=True, residual=both, owner=True),
        Kernel("spread", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True),
    )


def _phases_all(rank: int, workers: int) -> tuple[Phase, ...]:
    """Everyone sends each owner its chunk; the owner sums, encodes again, and sends the result to everyone."""
    peers = [(rank + d) % workers for d in range(1, workers)]
    result = Message(1, rank)
    scatter: list[Move] = []
    for peer in peers:
        scatter += [Run("contribute", peer, output=Message(0, peer)), Send(Message(0, peer), rank, peer, 0)]
    scatter.append(Run("contribute", rank, output=Message(0, rank)))
    reduce: list[Move] = [Receive(Message(0, rank), peer, peer, 0) for peer in peers]
    reduce.append(Run("combine", rank, tuple((w, Message(0, rank)) for w in range(workers)), result))
    reduce += [Send(result, rank, peer, 1) for peer in peers]
    reduce.append(Run("spread", rank, ((rank, result),)))
    gather: list[Move] = []
    for peer in peers:
        gather += [Receive(Message(1, peer), peer, peer, 1), Run("spread", peer, ((peer, Message(1, peer)),))]
    return tuple(scatter), tuple(reduce), tuple(gather)


def _kernels_ring(feedback: str) -> tuple[Kernel, ...]:
    worker, both = feedback in ("worker", "both"), feedback == "both"
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=worker, owner=False, contributes=True),
        Kernel("hop", "one", tensor=True, averages=False, residual=both, owner=False),
        Kernel("finish", "one", tensor=True, averages=True, residual=both, owner=True),
        Kernel("finish_alone", "none", tensor=True, averages=True, residual=both, owner=True),
        Kernel("spread", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True),
    )


def _phases_ring(rank: int, workers: int) -> tuple[Phase, ...]:
    """Chunk c starts at worker c + 1, gathers each worker's share hop by hop, is finished by its owner c, and the
    finished code travels on round the ring."""
    before, after = (rank - 1) % workers, (rank + 1) % workers
    if workers == 1:
        alone = Message(0, 0)
        return ((Run("finish_alone", 0, output=alone), Run("spread", 0, ((0, alone),))),)
    phases: list[Phase] = []
    for p in range(workers):
        chunk = (rank - 1 - p) % workers
        taken = Receive(Message(p - 1, chunk), before, before, p - 1)
        made = Message(p, chunk)
        left = Send(made, rank, after, p)
        if p == 0:
            phases.append((Run("contribute", chunk, output=made), left))
        elif p < workers - 1:
            phases.append((taken, Run("hop", chunk, ((before, taken.message),), made), left))
        else:
            finish = Run("finish", chunk, ((before, taken.message),), made)
            phases.append((taken, finish, left, Run("spread", chunk, ((rank, made),))))
    for p in range(1, workers):
        chunk = (rank - p) % workers
        result, leg = Message(workers - 1, chunk), workers - 2 + p
        moves: list[Move] = [Receive(result, chunk, before, leg)]
        if p < workers - 1:
            moves.append(Send(result, chunk, after, leg + 1))
        moves.append(Run("spread", chunk, ((chunk, result),)))
        phases.append(tuple(moves))
    return tuple(phases)


_ALL = Route(
    "all",
    _phases_all,
    _kernels_all,
    legs=lambda n: 2,
    roundings=lambda n: 2,
    sentences=(
        "{when} encodes it ({code}) and sends each owner the chunk that it owns",
        "each owner decodes and sums its chunk in rank order, divides, and encodes the mean again",
        "each owner sends the encoded mean to every worker; every worker decodes the same bytes",
    ),
)
_RING = Route(
    "ring",
    _phases_ring,
    _kernels_ring,
    legs=lambda n: max(1, 2 * n - 2),
    roundings=lambda n: n,
    sentences=(
        "{when} encodes one chunk ({code}) and sends it to the next rank",
        "each rank on the way decodes it, adds its own chunk, encodes the sum again and sends it on",
        "the last one, the chunk's owner, adds its own, divides, and encodes the mean",
        "the encoded mean goes once round the ring; every worker decodes the same bytes",
    ),
)
DEFAULT_ROUTE = _ALL.name
_WITH_INNER = re.compile(r"hierarchy\(inner = (\d+)\)")


def route_of(name: str) -> Route:
    """The route that a program names, such as all or hierarchy(inner = 4). Raise KeyError for another."""
    found = _WITH_INNER.fullmatch(name)
    return ROUTES[name] if found is None else hierarchy(int(found[1]))


def located(name: str, inner: int) -> str:
    """The route that `name` means where a machine has `inner` workers, unless it says so itself."""
    return hierarchy_of(inner) if name == HIERARCHY else name


def hierarchy_of(inner: int) -> str:
    return f"hierarchy(inner = {inner})"


# --- gather, for a mix, for a mean or sum of a code, and where the route says so: each hears from those that it needs,
# nobody encodes again


def gather_kernels(kind: str, feedback: str, guarded: bool = False) -> tuple[Kernel, ...]:
    """`kind` is mean, sum, mix or push; `feedback` none or worker; `guarded`: the codec has a guard."""
    residual = feedback in ("worker", "both")
    check = Kernel("check", "one", tensor=False, averages=False, residual=False, owner=False, checks=True)
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=residual, owner=False, contributes=True),
        *((check,) if guarded else ()),
        Kernel(
            "gather", "many", tensor=False, averages=kind == "mean", residual=False, owner=False, decodes=True,
            weighted=kind in WEIGHTED,
        ),
    )  # fmt: skip


TRIPS_LEG, VALUES_LEG = 1, 2


def gather_legs(guarded: bool) -> int:
    return 3 if guarded else 1


def gather_phases(
    rank: int, receives_from: Sequence[int], sends_to: Sequence[int], guarded: bool = False
) -> tuple[Phase, ...]:
    """A piece is one chunk, number 0. The inputs of `gather` are in rank order, this worker's own at its place; for a
    mix or push their weights are topology.weights(...), in the same order. Neighbours are given without the worker.

    With a guard, each receiver tells each sender which blocks have tripped, and is sent what was put into those."""
    own = Message(0, 0)
    out: list[Move] = [Run("contribute", 0, output=own)]
    out += [Send(own, rank, peer, 0) for peer in sends_to]
    heard: list[Move] = [Receive(own, peer, peer, 0) for peer in receives_from]
    makers = sorted({rank, *receives_from})
    inputs = tuple((maker, own) for maker in makers)
    if not guarded:
        return tuple(out), (*heard, Run("gather", 0, inputs))
    told: list[Move] = []
    for peer in receives_from:
        trips = Message(peer, 0, "trips")
        told += [
            Receive(own, peer, peer, 0),
            Run("check", 0, ((peer, own),), trips),
            Send(trips, rank, peer, TRIPS_LEG),
        ]
    asked: list[Move] = []
    for peer in sends_to:
        trips, values = Message(rank, 0, "trips"), Message(peer, 0, "values")
        asked += [Receive(trips, peer, peer, TRIPS_LEG), Send(values, rank, peer, VALUES_LEG)]
    again = Message(rank, 0, "values")
    back: list[Move] = [Receive(again, peer, peer, VALUES_LEG) for peer in receives_from]
    near = tuple(None if maker == rank else (maker, again) for maker in makers)
    return tuple(out), tuple(told), tuple(asked), (*back, Run("gather", 0, inputs, near=near))


# --- relay, over a tree: a message for each neighbour, made of what all others sent in the round before


def relay_kernels() -> tuple[Kernel, ...]:
    """A worker at the end of a branch passes on its own value alone: `contribute`."""
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=False, owner=False, contributes=True),
        Kernel("pass_on", "many", tensor=True, averages=False, residual=False, owner=False),
        Kernel("collect", "many", tensor=True, averages=False, residual=False, owner=False, decodes=True),
        Kernel("hold", "one", tensor=False, averages=False, residual=False, owner=False),
    )


def passed_to(peer: int) -> Message:
    """What a worker makes for that neighbour."""
    return Message(1 + peer, 0)


def held_from(peer: int) -> Message:
    """A worker's copy of what that neighbour sent in the round before; zeros at first. It lives on between rounds."""
    return Message(-1 - peer, 0)


def relay_phases(rank: int, neighbours: Sequence[int]) -> tuple[Phase, ...]:
    """A piece is one chunk, number 0. Inputs are in rank order. What has arrived is copied once it has been used: the
    next round's may arrive before that one's messages are made."""
    out: list[Move] = []
    for peer in neighbours:
        others = tuple((rank, held_from(k)) for k in neighbours if k != peer)
        out += [
            Run("pass_on" if others else "contribute", 0, others, passed_to(peer)),
            Send(passed_to(peer), rank, peer, 0),
        ]
    own = passed_to(rank)
    back: list[Move] = [Receive(own, peer, peer, 0) for peer in neighbours]
    if neighbours:
        back.append(Run("collect", 0, tuple((peer, own) for peer in neighbours)))
    back += [Run("hold", 0, ((peer, own),), held_from(peer)) for peer in neighbours]
    return tuple(out), tuple(back)


def everyone(rank: int, workers: int) -> list[int]:
    """The others. Each begins with the one behind it, so that not all send to the same one first."""
    return [(rank + d) % workers for d in range(1, workers)]


def _gather_all(rank: int, workers: int) -> tuple[Phase, ...]:
    others = everyone(rank, workers)
    return gather_phases(rank, others, others)


GATHER, HIERARCHY = "gather", "hierarchy"
_GATHER = Route(
    GATHER,
    _gather_all,
    lambda feedback: gather_kernels("mean", feedback),
    legs=lambda n: 1,
    roundings=lambda n: 1,
    sentences=(
        "{when} encodes it ({code}) and sends the code to every other",
        "each worker decodes the codes of all, its own too, sums them in rank order, divides, and has the mean",
    ),
    whole=True,
)
ROUTES = {route.name: route for route in (_ALL, _RING, _GATHER, hierarchy(1))}
"""By name. A hierarchy is of machines with one worker each until somebody says how many there are."""

# --- which of these an exchange uses


def gathers(kind: str, coded: bool, route: str) -> bool:
    """Whether everyone hears the codes of those that it needs, and nobody encodes again; `coded`: it is of a code."""
    return coded or kind in WEIGHTED or route == GATHER


def kernels_of(kind: str, route: str, feedback: str, coded: bool, guarded: bool = False) -> tuple[Kernel, ...]:
    """All that the messages of an exchange need; `guarded`: its codec has a guard."""
    if kind == "relay":
        return relay_kernels()
    if gathers(kind, coded, route):
        return gather_kernels(kind, feedback, guarded)
    return route_of(route).kernels(feedback, kind)


def done_by_fragments(leaves: str, lands: str) -> frozenset[str]:
    """The kernels that fragments of a program stand for, where they encode into messages (`leaves` is "code") or decode
    them (`lands` is)."""
    encoding = {"contribute"} if leaves == "code" else set()
    return frozenset(encoding | ({"spread", "gather"} if lands == "code" else set()))


GATHER_STORY = (
    "each worker encodes what it contributes ({code}) and sends it to each of its neighbours",
    "each worker decodes what its neighbours sent, and its own, and adds them up in rank order with their weights",
)
GUARDED_STORY = (
    GATHER_STORY[0],
    "each worker checks what it is sent and answers with a byte a block; blocks that fail are sent again as they are",
    GATHER_STORY[1],
)
RELAY_STORY = (
    "each worker sends each of its neighbours its own numbers plus what all other neighbours sent it last time",
    "each worker adds what its neighbours sent to its own: everyone's numbers, as old as the path to them is long",
)
GATHER_ALL_STORY = (
    "each worker sends its code ({code}) to every other",
    "each worker decodes the codes of all, its own too, and adds them up in rank order",
)
