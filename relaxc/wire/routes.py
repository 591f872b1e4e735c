"""Routes of a mean as data: what each worker computes, sends and receives for one piece, phase by phase.

A piece is cut into one chunk per worker: chunk c is what worker c owns of it (ownership.py). A route is a function of
(rank, workers) that returns phases; a phase is a list of moves in order. Interpreter, verifier, schedule and, through
the schedule, the C++ runtime all execute these same lists, so a new route is one more function here.

A message is named by what it holds, (stage, chunk, who made it); a leg is one use of the connection between two
workers: within a leg a worker sends a peer at most one message, so legs become tags.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fused local computation over the blocks of one chunk.

    value = sum of the decoded input messages, in the order given
            + tensor            if `tensor`
            * 1/workers         if `averages`
            + residual          if `residual`
    It then writes `value` to the tensor (`decodes`), or encodes it to the output message; with `residual`, residual
    := value - decoded(output), element by element where that is finite. `owner` tells which residual and which dither
    key: the owner's (of the mean, keyed without the worker) or the worker's.
    """

    name: str
    inputs: str
    """none, one, all (one for each worker, in rank order)"""
    tensor: bool
    averages: bool
    residual: bool
    owner: bool
    decodes: bool = False


@dataclass(frozen=True, slots=True)
class Message:
    """A code of a chunk: `stage` 0 is a contribution, each further one has been summed once more."""

    stage: int
    chunk: int


@dataclass(frozen=True, slots=True)
class Run:
    """Run `kernel` on `chunk`; `inputs` are messages held here, `output` is None where the kernel decodes."""

    kernel: str
    chunk: int
    inputs: tuple[tuple[int, Message], ...] = ()
    """(the rank that made it, message)"""
    output: Message | None = None


@dataclass(frozen=True, slots=True)
class Send:
    message: Message
    made_by: int
    peer: int
    leg: int


@dataclass(frozen=True, slots=True)
class Receive:
    """Wait until `message` from `peer` is here. It was made by `made_by`, who need not be `peer`."""

    message: Message
    made_by: int
    peer: int
    leg: int


Move = Run | Send | Receive
Phase = tuple[Move, ...]


@dataclass(frozen=True, slots=True)
class Route:
    """`legs(workers)` is how many legs a piece has; `roundings(workers)` how often a value
    is encoded between a contribution and the result."""

    name: str
    phases: Callable[[int, int], tuple[Phase, ...]]
    kernels: Callable[[str], tuple[Kernel, ...]]
    legs: Callable[[int], int]
    roundings: Callable[[int], int]


def _kernels_all(feedback: str) -> tuple[Kernel, ...]:
    worker, both = feedback in ("worker", "both"), feedback == "both"
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=worker, owner=False),
        Kernel("combine", "all", tensor=False, averages=True, residual=both, owner=True),
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
        Kernel("contribute", "none", tensor=True, averages=False, residual=worker, owner=False),
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


ROUTES = {
    "all": Route("all", _phases_all, _kernels_all, legs=lambda n: 2, roundings=lambda n: 2),
    "ring": Route("ring", _phases_ring, _kernels_ring, legs=lambda n: max(1, 2 * n - 2), roundings=lambda n: n),
}
