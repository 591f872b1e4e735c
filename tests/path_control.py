"""Which path an iteration takes, evaluated from the top as the host does: guards, counters, queues of landings. For
path_runner.py; attach has its own, and they are held against each other through the interpreter."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from relaxc.program.arithmetic import host_number
from relaxc.program.flights import DROP, LAND, Flight
from relaxc.program.ir import ASYNC
from relaxc.program.paths import Guard, SetNumber
from relaxc.wire.draws import geometric, head_start
from relaxc.wire.parameters import elements_before


@dataclass
class Entry:
    """A worker's launch that has not landed. `numbers` are its captures, `flight` is for an async one."""

    due: int
    round: int
    numbers: dict[str, float] = field(default_factory=dict)
    flight: Flight | None = None


@dataclass
class Counts:
    """What control of one worker remembers of one parameter."""

    runs: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    queues: dict[int, deque[Entry]] = field(default_factory=dict)
    aloft: dict[int, Entry] = field(default_factory=dict)
    launches: dict[int, int] = field(default_factory=dict)


@dataclass
class Turn:
    """What control has decided for an iteration. `landing` and `launched` are entries by block of the `after`."""

    truths: list[bool] = field(default_factory=list)
    rounds: dict[int, int] = field(default_factory=dict)
    landing: dict[int, Entry] = field(default_factory=dict)
    launched: dict[int, Entry] = field(default_factory=dict)
    outer: dict[int, int] = field(default_factory=dict)
    """The block around each `after`."""


class Control:
    """Guards of one worker from the top."""

    def __init__(self, run: Any) -> None:
        self.run, self.counts = run, run.store.counts[run.w]
        self.now = {**run.store.numbers[run.w], "t": float(run.owner.iteration)}
        self.result = Turn(rounds={0: run.owner.iteration})
        self.blocks: list[int] = []

    def turn(self) -> Turn:
        for step in self.run.body.control:
            inside = (step.guard if isinstance(step, SetNumber) else step.parent) < 0 or self.result.truths[
                step.guard if isinstance(step, SetNumber) else step.parent
            ]
            if isinstance(step, SetNumber):
                self.set(step, inside)
            else:
                self.guard(step, inside)
        return self.result

    def set(self, step: SetNumber, inside: bool) -> None:
        value = host_number(step.value, self.now) if inside else 0.0
        state = any(s.name == step.name for s in self.run.body.states)
        if inside and (math.isfinite(value) or not state):
            self.now[step.name] = value

    def guard(self, guard: Guard, inside: bool) -> None:
        outer = 0 if guard.parent < 0 else self.blocks[guard.parent]
        self.blocks.append(guard.block)
        if guard.delay == ASYNC:
            self.result.outer[guard.block] = outer
            self.result.truths.append(self.arrives(guard) if guard.kind == "land" else inside and self.leaves(guard))
            return
        if guard.kind == "land":
            self.result.truths.append(self.land(guard, inside, outer))
            return
        runs = inside and (self.due(guard) if guard.kind == "every" else self.on(guard, outer))
        self.result.truths.append(runs)
        if runs:
            self.result.rounds[guard.block] = self.counts.runs.get(guard.block, 0)
            self.counts.runs[guard.block] = self.result.rounds[guard.block] + 1

    def on(self, phase: Guard, outer: int) -> bool:
        moment = self.result.rounds[outer]
        return phase.first <= moment and (phase.end is None or moment < phase.end)

    def due(self, every: Guard) -> bool:
        assert every.period is not None
        period, counts, block = host_number(every.period, self.now), self.counts, every.block
        reached = counts.reached.get(block, 0)
        counts.reached[block] = reached + 1
        if every.how == "geometric":
            return geometric(self.run.owner.seed, block, reached, period)
        if every.how == "staggered" and reached == 0:
            before, total = elements_before(self.run.owner.parameters)
            counts.waited[block] = head_start(before[self.run.parameter.number], total, period)
        waited = counts.waited.get(block, 0) + 1
        counts.waited[block] = 0 if waited >= period else waited
        return waited >= period

    def land(self, guard: Guard, launches: bool, outer: int) -> bool:
        queue, block, t = self.counts.queues.setdefault(guard.block, deque()), guard.block, self.run.owner.iteration
        self.result.outer[block] = outer
        if launches:
            self.result.launched[block] = Entry(t + guard.delay, self.result.rounds[outer])
            queue.append(self.result.launched[block])
        if not queue or queue[0].due > t:
            return False
        self.result.landing[block] = queue.popleft()
        self.result.rounds[block] = self.result.landing[block].round
        return True

    def arrives(self, guard: Guard) -> bool:
        entry = self.counts.aloft.get(guard.block)
        if entry is None:
            return False
        assert entry.flight is not None
        owner, now = self.run.owner, self.run.owner.iteration
        outcome = owner.arrivals.outcome(entry.flight, now, self.run.is_there(entry.flight))
        due = bool(guard.most and now - entry.flight.since >= guard.most)
        if outcome in (DROP, LAND) or due:
            del self.counts.aloft[guard.block]
        if outcome == DROP or not (outcome == LAND or due):
            return False
        self.result.landing[guard.block] = entry
        self.result.rounds[guard.block] = entry.round
        return True

    def leaves(self, guard: Guard) -> bool:
        block = guard.block
        if block in self.counts.aloft or block in self.result.landing:
            return False
        round = self.counts.launches.get(block, 0)
        self.counts.launches[block] = round + 1
        self.result.launched[block] = Entry(-1, round, flight=self.run.flight(block, round))
        self.counts.aloft[block] = self.result.launched[block]
        self.result.rounds[block] = round
        return True
