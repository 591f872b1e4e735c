"""Which path an iteration takes, evaluated from the top as the host does: guards, counters, queues of landings. For
path_runner.py; attach has its own, and they are held against each other through the interpreter."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from relaxc.program.arithmetic import host_number
from relaxc.program.paths import Guard, SetNumber
from relaxc.wire.draws import geometric, head_start


@dataclass
class Entry:
    """A launch that has not landed. `numbers` are its captures, by worker."""

    due: int
    round: int
    numbers: list[dict[str, float]]


@dataclass
class Counts:
    runs: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    queues: dict[int, deque[Entry]] = field(default_factory=dict)


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
    """Guards from the top, as worker 0's numbers have them: they are the same on all workers."""

    def __init__(self, run: Any) -> None:
        self.run, self.counts = run, run.store.counts
        self.now = {**run.store.numbers[0], "t": float(run.owner.iteration)}
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
            counts.waited[block] = head_start(self.run.parameter.number, len(self.run.owner.parameters), period)
        waited = counts.waited.get(block, 0) + 1
        counts.waited[block] = 0 if waited >= period else waited
        return waited >= period

    def land(self, guard: Guard, launches: bool, outer: int) -> bool:
        queue, block, t = self.counts.queues.setdefault(guard.block, deque()), guard.block, self.run.owner.iteration
        self.result.outer[block] = outer
        if launches:
            numbers: list[dict[str, float]] = [{} for _ in self.run.workers]
            self.result.launched[block] = Entry(t + guard.delay, self.result.rounds[outer], numbers)
            queue.append(self.result.launched[block])
        if not queue or queue[0].due > t:
            return False
        self.result.landing[block] = queue.popleft()
        self.result.rounds[block] = self.result.landing[block].round
        return True
