"""The route `hierarchy`: plain numbers within a machine, codes across.

Workers are numbered machine by machine, `inner` to each. Worker l of a machine leads, there, the chunks whose owner is
the l-th of its own machine: so all connections between machines are used at once, each by one of its workers.

Where all are in one machine nothing is encoded: the leader is the owner, and everyone receives the mean as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxc.wire.moves import NUMBERS, Kernel, Message, Move, Phase, Receive, Route, Run, Send

GIVEN, SUM, LED, RESULT = range(4)
"""Stages: a worker's own numbers, the sum of a machine's, its code, the code of the result."""


def hierarchy(inner: int) -> Route:
    """With `inner` workers on each machine."""
    return Route(
        "hierarchy",
        lambda rank, workers: _phases(_Place(rank, workers, inner)),
        _kernels,
        legs=lambda workers: max(2, 2 * workers // inner),
        roundings=lambda workers: 2 if workers > inner else 0,
        sentences=_SENTENCES,
        inner=inner,
    )


_SENTENCES = (
    "{when} sends each worker of its machine the chunks that it leads there, as plain numbers",
    "each leader sums its chunks in rank order, encodes the sum ({code}) and sends each owner its chunk",
    "each owner decodes and sums its chunk in the order of machines, divides, and encodes the mean again",
    "the encoded mean goes to its leader on each machine, who passes it on; every worker decodes the same bytes",
)


def _kernels(feedback: str) -> tuple[Kernel, ...]:
    worker, both = feedback in ("worker", "both"), feedback == "both"
    return (
        _kernel("give", "none", tensor=True, makes_exact=True),
        _kernel("add", "many", takes_exact=True, makes_exact=True),
        _kernel("lead", "one", residual=worker, contributes=True, takes_exact=True),
        _kernel("combine", "many", averages=True, residual=both, owner=True),
        _kernel("spread", "one", decodes=True),
        # where all are in one machine
        _kernel("settle", "many", averages=True, takes_exact=True, makes_exact=True),
        _kernel("hand_out", "one", decodes=True, takes_exact=True),
    )


def _kernel(name: str, inputs: str, **what: bool) -> Kernel:
    return Kernel(name, inputs, **({"tensor": False, "averages": False, "residual": False, "owner": False} | what))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a worker is. Others are listed beginning with the next one, so that not all send to the same one first."""

    rank: int
    workers: int
    inner: int

    @property
    def machine(self) -> int:
        return self.rank // self.inner

    @property
    def machines(self) -> int:
        return self.workers // self.inner

    def led(self, worker: int) -> list[int]:
        """The chunks that a worker leads, by the machine of their owner."""
        return [machine * self.inner + worker % self.inner for machine in range(self.machines)]

    @property
    def here(self) -> range:
        """The workers of this machine."""
        return range(self.machine * self.inner, (self.machine + 1) * self.inner)

    @property
    def near(self) -> list[int]:
        """The others of this machine."""
        start = self.machine * self.inner
        return [start + (self.rank + d) % self.inner for d in range(1, self.inner)]

    @property
    def far(self) -> list[int]:
        """Those who lead on other machines what this worker leads here."""
        return [(self.rank + d * self.inner) % self.workers for d in range(1, self.machines)]

    def leg(self, chunk: int, back: bool) -> int:
        """Of a chunk within the machine: one for each that a leader has, on its way there and back."""
        return chunk // self.inner + back * self.machines


ACROSS, BACK_ACROSS = 0, 1
"""Legs between machines: of other pairs of workers than those within one, so they may have the same numbers."""


def _phases(at: _Place) -> tuple[Phase, ...]:
    if at.machines == 1:
        return _give(at), _settle(at), _hand_out(at)
    return _give(at), _lead(at), _combine(at), _pass_on(at), _take(at)


def _give(at: _Place) -> Phase:
    """Everyone's numbers to those who lead them."""
    moves: list[Move] = []
    for peer in [*at.near, at.rank]:
        for chunk in at.led(peer):
            given = Message(GIVEN, chunk, NUMBERS)
            moves.append(Run("give", chunk, output=given))
            if peer != at.rank:
                moves.append(Send(given, at.rank, peer, at.leg(chunk, back=False)))
    return tuple(moves)


def _gathered(at: _Place, kernel: str, chunk: int) -> tuple[list[Move], Message]:
    """The sum of this machine's numbers, in rank order."""
    given, total = Message(GIVEN, chunk, NUMBERS), Message(SUM, chunk, NUMBERS)
    moves: list[Move] = [Receive(given, peer, peer, at.leg(chunk, back=False)) for peer in at.near]
    return [*moves, Run(kernel, chunk, tuple((worker, given) for worker in at.here), total)], total


def _lead(at: _Place) -> Phase:
    """Codes of sums to the owners, its own first: then the rest is on its way while others' are waited for."""
    moves: list[Move] = []
    for owner in [*at.far, at.rank]:
        summed, total = _gathered(at, "add", owner)
        code = Message(LED, owner)
        moves += [*summed, Run("lead", owner, ((at.rank, total),), code)]
        if owner != at.rank:
            moves.append(Send(code, at.rank, owner, ACROSS))
    return tuple(moves)


def _combine(at: _Place) -> Phase:
    code, result = Message(LED, at.rank), Message(RESULT, at.rank)
    moves: list[Move] = [Receive(code, peer, peer, ACROSS) for peer in at.far]
    moves.append(Run("combine", at.rank, tuple((leader, code) for leader in sorted([at.rank, *at.far])), result))
    moves += [Send(result, at.rank, peer, BACK_ACROSS) for peer in at.far]
    return (*moves, *_onward(at, result, "spread"))


def _onward(at: _Place, result: Message, kernel: str) -> list[Move]:
    """A result, which its owner made, to the others of the machine."""
    owner = result.chunk
    sends = [Send(result, owner, peer, at.leg(owner, back=True)) for peer in at.near]
    return [*sends, Run(kernel, owner, ((owner, result),))]


def _pass_on(at: _Place) -> Phase:
    """What other owners made of what this worker leads."""
    moves: list[Move] = []
    for owner in at.far:
        result = Message(RESULT, owner)
        moves += [Receive(result, owner, owner, BACK_ACROSS), *_onward(at, result, "spread")]
    return tuple(moves)


def _take(at: _Place) -> Phase:
    return _taken(at, "spread", lambda chunk: Message(RESULT, chunk))


def _taken(at: _Place, kernel: str, result: Callable[[int], Message]) -> Phase:
    """What the others of the machine lead."""
    moves: list[Move] = []
    for leader in at.near:
        for chunk in at.led(leader):
            arrived = result(chunk)
            moves.append(Receive(arrived, chunk, leader, at.leg(chunk, back=True)))
            moves.append(Run(kernel, chunk, ((chunk, arrived),)))
    return tuple(moves)


def _settle(at: _Place) -> Phase:
    summed, mean = _gathered(at, "settle", at.rank)
    return (*summed, *_onward(at, mean, "hand_out"))


def _hand_out(at: _Place) -> Phase:
    return _taken(at, "hand_out", lambda chunk: Message(SUM, chunk, NUMBERS))
