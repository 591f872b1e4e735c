"""What routes are made of: kernels, messages, moves.

All workers have the same number of phases, and a message is received in a later phase than the one it is sent in: the
queue runs phases in rounds, so this is what keeps workers from waiting for each other in a circle. `verify` checks it.

A message is named by what it holds, (stage, chunk, who made it); a leg is one use of the connection between two
workers: within a leg a worker sends a peer at most one message, so legs become tags.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

NUMBERS = "numbers"


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
    so a kernel that adds a residual leaves the sum there; one that `checks` makes no value: of one message it tells for
    each block, in a byte, whether it is to be decoded near what its sender put in (1), or near what the tensor holds.

    With `takes_exact` its inputs hold plain numbers (wire/layout.EXACT), with `makes_exact` its output does. One that
    takes numbers and makes a code finds the one message that it takes as its operand `sum`, which needs no decoding.
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
    """It encodes this worker's own contribution, or its machine's: the place of `feedback = worker`."""
    weighted: bool = False
    takes_exact: bool = False
    makes_exact: bool = False
    checks: bool = False

    @property
    def exact(self) -> bool:
        """Whether no code is made or decoded."""
        return self.makes_exact or (self.takes_exact and self.decodes)

    @property
    def reads_sum(self) -> bool:
        return self.takes_exact and not self.exact

    @property
    def label(self) -> str:
        """What a profiler calls it."""
        if self.checks:
            return "check"
        return "decode" if self.decodes else "encode" if self.contributes else "reduce"


@dataclass(frozen=True, slots=True)
class Message:
    """`what` is a code of a chunk, its plain `numbers`, `trips`, a byte for each of its blocks, or the `values` of the
    blocks that have tripped, whose number both ends know from those bytes. `stage` tells apart what one worker makes of
    a chunk, 0 being its contribution; of trips it is whose code they are about, of values whom they are for."""

    stage: int
    chunk: int
    what: str = "code"

    @property
    def exact(self) -> bool:
        return self.what == NUMBERS


@dataclass(frozen=True, slots=True)
class Run:
    """Run `kernel` on `chunk`; `inputs` are messages held here, `output` is None where the kernel decodes. `near` has
    for each input the values of those of its blocks that are decoded near them, if there can be any."""

    kernel: str
    chunk: int
    inputs: tuple[tuple[int, Message], ...] = ()
    """(the rank that made it, message)"""
    output: Message | None = None
    near: tuple[tuple[int, Message] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Send:
    """Of values: those of the blocks that have tripped at `peer`, as they were put into this worker's code."""

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


class Sent(NamedTuple):
    """What a chunk is sent as and how far: between machines, which without inner are the workers."""

    exact: bool
    across: bool


@dataclass(frozen=True, slots=True)
class Route:
    """`legs(workers)` is how many legs a piece has; `roundings(workers)` how often a value
    is encoded between a contribution and the result. `inner` is the workers of a machine, where a route knows any."""

    name: str
    phases: Callable[[int, int], tuple[Phase, ...]]
    of_mean: Callable[[str], tuple[Kernel, ...]]
    """The kernels of a mean with this feedback."""
    legs: Callable[[int], int]
    roundings: Callable[[int], int]
    sentences: tuple[str, ...]
    """What is sent when and to whom; {code} stands for the codec, {when} for what starts it."""
    inner: int = 1
    whole: bool = False
    """A piece is one chunk, number 0, of which everyone hears everyone's code."""

    def refusal(self, workers: int) -> str | None:
        """Why there is no such route among `workers`; None where there is."""
        if workers % self.inner == 0:
            return None
        return f"{workers} workers are not a whole number of machines with {self.inner} workers each"

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

    def sends(self, workers: int) -> Counter[Sent]:
        """Chunks that all workers send."""
        return Counter(
            Sent(move.message.exact, rank // self.inner != move.peer // self.inner)
            for rank in range(workers)
            for phase in self.phases(rank, workers)
            for move in phase
            if isinstance(move, Send)
        )

    def buffers(self, workers: int) -> Counter[bool]:
        """Messages that all workers hold, by whether they are exact."""
        held = {
            (rank, *key)
            for rank in range(workers)
            for phase in self.phases(rank, workers)
            for move in phase
            for key in _touched(rank, move)
        }
        return Counter(message.exact for _rank, _maker, message in held)


def _touched(rank: int, move: Move) -> list[tuple[int, Message]]:
    if isinstance(move, Run):
        return [*move.inputs, *([(rank, move.output)] if move.output else [])]
    return [(move.made_by, move.message)]


WHEN = "as soon as backward has made a bucket's gradients, each worker"
_DIVIDES = " divides,"
