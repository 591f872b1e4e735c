"""The queue's thread in simulated time: the same rounds as runtime/queue.cpp, piece after piece."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from relaxc.manifest import ExchangePlan
from relaxc.schedule.actions import Action, Piece
from relaxc.schedule.predict_costs import Costs
from relaxc.schedule.predict_links import Links
from relaxc.schedule.predict_machine import Busy, Machine, Mark, Thread


@dataclass(frozen=True, slots=True)
class Load:
    """A piece of a bucket, or with `dense_bytes` a whole bucket that is all-reduced. `exchange` is None where no kernel
    runs."""

    bucket: int
    piece: Piece | None
    exchange: ExchangePlan | None
    dense_bytes: int = 0

    @property
    def steps(self) -> int:
        return 2 if self.piece is None else len(self.piece.phases)


@dataclass(eq=False)
class Launch:
    """What goes as one. `ready` and `landed` are by bucket."""

    loads: Sequence[Load]
    ready: dict[int, Mark] = field(default_factory=dict)
    landed: dict[int, Mark] = field(default_factory=dict)
    over: Mark = field(default_factory=Mark)

    def __post_init__(self) -> None:
        for load in self.loads:
            self.ready.setdefault(load.bucket, Mark())
            self.landed.setdefault(load.bucket, Mark())


class Queue:
    """Carries out launches in the order in which they come."""

    def __init__(self, machine: Machine, links: Links, costs: Costs) -> None:
        self._machine, self._links, self._costs = machine, links, costs
        self._waiting: deque[Launch] = deque()
        self._arrived = Mark()
        machine.start(self._loop())

    def push(self, launch: Launch) -> None:
        self._waiting.append(launch)
        self._machine.set(self._arrived)

    def _loop(self) -> Thread:
        while True:
            while not self._waiting:
                self._arrived = Mark()
                yield self._arrived
            launch = self._waiting.popleft()
            yield from _Rounds(launch, self._machine, self._links, self._costs).run()
            for mark in launch.landed.values():
                self._machine.set(mark)
            self._machine.set(launch.over)


class _Rounds:
    """Round r starts piece r, then does phase 1 of piece r - 1, phase 2 of r - 2 and so on; while the next bucket isn't
    ready, what has started goes on by two rounds at most."""

    def __init__(self, launch: Launch, machine: Machine, links: Links, costs: Costs) -> None:
        self._launch, self._machine, self._links, self._costs = launch, machine, links, costs
        self._loads = launch.loads
        self._next = [0] * len(self._loads)
        self._sums: dict[int, Mark] = {}
        self._coded: list[int] = []
        self._dense: list[int] = []
        self._unfinished: dict[int, int] = {}
        for load in self._loads:
            self._unfinished[load.bucket] = self._unfinished.get(load.bucket, 0) + 1
        self._rounds = self._head = 0

    def run(self) -> Thread:
        while self._head < len(self._loads) or self._coded or self._dense:
            ahead = bool(self._coded) and self._rounds < self._head + 2
            if self._head < len(self._loads) and (not ahead or self._is_ready()):
                yield self._launch.ready[self._loads[self._head].bucket]
                self._head += 1
                yield from self._start(self._head - 1)
                if self._rounds < self._head:
                    yield from self._round()
            elif self._coded:
                yield from self._round()
            else:
                yield from self._advance(self._dense, 0)

    def _is_ready(self) -> bool:
        return self._launch.ready[self._loads[self._head].bucket].time is not None

    def _due(self, number: int, round: int) -> bool:
        return number + self._next[number] <= round

    def _start(self, number: int) -> Thread:
        started = self._dense if self._loads[number].piece is None else self._coded
        started.append(number)
        yield from self._advance(started, len(started) - 1)
        while self._coded and self._coded[-1] == number and self._rounds > 0 and self._due(number, self._rounds - 1):
            yield from self._advance(self._coded, len(self._coded) - 1)

    def _round(self) -> Thread:
        for older in reversed(range(len(self._coded))):
            if self._due(self._coded[older], self._rounds):
                yield from self._advance(self._coded, older)
        self._rounds += 1

    def _advance(self, started: list[int], position: int) -> Thread:
        number = started[position]
        load = self._loads[number]
        yield from self._step(number, load)
        if self._next[number] < load.steps:
            return
        del started[position]
        self._unfinished[load.bucket] -= 1
        if not self._unfinished[load.bucket]:
            self._machine.set(self._launch.landed[load.bucket])

    def _step(self, number: int, load: Load) -> Thread:
        phase = self._next[number]
        self._next[number] += 1
        if load.piece is not None:
            yield from self._act(number, load, load.piece, load.piece.phases[phase])
        elif phase == 0:
            self._sums[number] = self._links.reduce(load.dense_bytes, load.bucket)
        else:
            yield self._sums[number]

    def _act(self, number: int, load: Load, piece: Piece, actions: Iterable[Action]) -> Thread:
        sharing = self._links.sharing(load.exchange)
        codec = None if load.exchange is None else load.exchange.codec
        for action in actions:
            leg = (self, number, action.tag)
            if action.kind == "send":
                self._links.send(leg, action.peer, piece.buffers[action.buffer], load.bucket, sharing.out)
            elif action.kind == "receive":
                yield self._links.receive(leg, action.peer, piece.buffers[action.buffer], sharing.into)
            elif action.kind in ("run", "check") and action.kernel is not None and codec is not None:
                elements = sum(r.elements for r in action.ranges)
                cost = self._costs.kernel(action.kernel, codec, elements, len(action.inputs))
                yield Busy(cost.decode, "decode", action.kernel.label, load.bucket)
                yield Busy(cost.encode, "encode", action.kernel.label, load.bucket)
