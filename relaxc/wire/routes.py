"""Routes as data: what each worker computes, sends and receives for one piece, phase by phase.

For a mean or a sum a piece is cut into one chunk per worker: chunk c is what worker c owns of it (ownership.py). A
route is a function of (rank, workers) that returns phases; a phase is a list of moves in order. Interpreter, verifier,
schedule and, through the schedule, the C++ runtime all execute these same lists. What a route means is defined once
more, without messages, in program/exchange.py, which they are held against.

All workers have the same number of phases, and a message is received in a later phase than the one it is sent in: the
queue runs phases in rounds, so this is what keeps workers from waiting for each other in a circle. `verify` checks it.

A message is named by what it holds, (stage, chunk, who made it); a leg is one use of the connection between two
workers: within a leg a worker sends a peer at most one message, so legs become tags.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Kernel:
    """A fused local computation over the blocks of one chunk.

    value = sum of the decoded input messages, in the order given, each times its weight if `weighted`
            + tensor            if `tensor`
            * 1/workers         if `averages`
            + residual          if `residual`
    The tensor is the kernel's operand `value`: a gradient, or the slot of an exchange. A kernel writes `value` there
    (`decodes`), or encodes it to the output message; with `residual`, residual := value - decoded(output), element by
    element where that is finite. `owner` tells which residual and which dither key: the owner's (of the mean, keyed
    without the worker) or the worker's. A codec with `near` decodes next to what the tensor held,
    so a kernel that adds a residual leaves the sum there.
    """

    name: str
    inputs: str
    """none, one, many (as many as are given)"""
    tensor: bool
    averages: bool
    residual: bool
    owner: bool
    decodes: bool = False
    contributes: bool = False
    """It encodes this worker's own contribution, nothing else: the place of `feedback = worker`."""
    weighted: bool = False

    @property
    def label(self) -> str:
        """What a profiler calls it."""
        return "decode" if self.decodes else "encode" if self.contributes else "reduce"


@dataclass(frozen=True, slots=True)
class Message:
    """A code of a chunk. `stage` tells apart the codes that one worker makes of it; 0 is its contribution."""

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
    of_mean: Callable[[str], tuple[Kernel, ...]]
    """The kernels of a mean with this feedback."""
    legs: Callable[[int], int]
    roundings: Callable[[int], int]
    sentences: tuple[str, ...]
    """What is sent when and to whom; {code} stands for the codec, {when} for what starts it."""
    whole: bool = False
    """A piece is one chunk, number 0, of which everyone hears everyone's code."""

    def story_of(self, kind: str, when: str) -> tuple[str, ...]:
        """Of a mean or a sum. `when` names who does it, too: "at the end of an iteration, each worker"."""
        told = tuple(line.replace("{when}", when) for line in self.sentences)
        if kind == "mean":
            return told
        return tuple(t.replace(_DIVIDES, "").replace(" mean", " sum") for t in told)

    def kernels(self, feedback: str, kind: str = "mean") -> tuple[Kernel, ...]:
        """Those of a `mean` or a `sum`, which has the same ones without the division."""
        kernels = self.of_mean(feedback)
        return kernels if kind == "mean" else tuple(replace(k, averages=False) for k in kernels)

    def sends(self, workers: int) -> float:
        """Chunks that a worker sends for each that it owns, the mean over workers; or whole codes, of a whole piece."""
        moves = (m for rank in range(workers) for phase in self.phases(rank, workers) for m in phase)
        return sum(isinstance(m, Send) for m in moves) / workers

    def buffers(self, workers: int) -> float:
        """Messages that a worker holds for each chunk that it owns, the mean over workers."""
        held = {
            (rank, *key)
            for rank in range(workers)
            for phase in self.phases(rank, workers)
            for move in phase
            for key in _touched(rank, move)
        }
        return len(held) / workers


def _touched(rank: int, move: Move) -> list[tuple[int, Message]]:
    if isinstance(move, Run):
        return [*move.inputs, *([(rank, move.output)] if move.output else [])]
    return [(move.made_by, move.message)]


WHEN = "as soon as backward has made a bucket's gradients, each worker"
_DIVIDES = " divides,"


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

# --- gather, for a mix, for a mean or sum of a code, and where the route says so: each hears from those that it needs,
# nobody encodes again


def gather_kernels(kind: str, feedback: str) -> tuple[Kernel, ...]:
    """`kind` is mean, sum or mix; `feedback` none or worker."""
    residual = feedback in ("worker", "both")
    return (
        Kernel("contribute", "none", tensor=True, averages=False, residual=residual, owner=False, contributes=True),
        Kernel(
            "gather", "many", tensor=False, averages=kind == "mean", residual=False, owner=False, decodes=True,
            weighted=kind == "mix",
        ),
    )  # fmt: skip


def gather_phases(rank: int, receives_from: Sequence[int], sends_to: Sequence[int]) -> tuple[Phase, ...]:
    """A piece is one chunk, number 0. The inputs of `gather` are in rank order, this worker's own at its place; for a
    mix their weights are topology.weights(...), in the same order. Neighbours are given without the worker itself."""
    own = Message(0, 0)
    out: list[Move] = [Run("contribute", 0, output=own)]
    out += [Send(own, rank, peer, 0) for peer in sends_to]
    back: list[Move] = [Receive(own, peer, peer, 0) for peer in receives_from]
    back.append(Run("gather", 0, tuple((maker, own) for maker in sorted({rank, *receives_from}))))
    return tuple(out), tuple(back)


def everyone(rank: int, workers: int) -> list[int]:
    """The others. Each begins with the one behind it, so that not all send to the same one first."""
    return [(rank + d) % workers for d in range(1, workers)]


def _gather_all(rank: int, workers: int) -> tuple[Phase, ...]:
    others = everyone(rank, workers)
    return gather_phases(rank, others, others)


GATHER = "gather"
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
ROUTES = {route.name: route for route in (_ALL, _RING, _GATHER)}

# --- which of these an exchange uses


def gathers(kind: str, coded: bool, route: str) -> bool:
    """Whether everyone hears the codes of those that it needs, and nobody encodes again; `coded`: it is of a code."""
    return coded or kind == "mix" or route == GATHER


def kernels_of(kind: str, route: str, feedback: str, coded: bool) -> tuple[Kernel, ...]:
    """All that the messages of an exchange need."""
    return gather_kernels(kind, feedback) if gathers(kind, coded, route) else ROUTES[route].kernels(feedback, kind)


def done_by_fragments(leaves: str, lands: str) -> frozenset[str]:
    """The kernels that fragments of a program stand for, where they encode into messages (`leaves` is "code") or decode
    them (`lands` is)."""
    encoding = {"contribute"} if leaves == "code" else set()
    return frozenset(encoding | ({"spread", "gather"} if lands == "code" else set()))


GATHER_STORY = (
    "each worker encodes what it contributes ({code}) and sends it to each of its neighbours",
    "each worker decodes what its neighbours sent, and its own, and adds them up in rank order with their weights",
)
GATHER_ALL_STORY = (
    "each worker sends its code ({code}) to every other",
    "each worker decodes the codes of all, its own too, and adds them up in rank order",
)
