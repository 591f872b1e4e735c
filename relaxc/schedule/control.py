"""What runs in an iteration: guards, counters and queues of one cohort, evaluated on the host before it begins.

A cohort is what has the same body, the same settings and the same head start, so the same truths in every iteration.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from relaxc.manifest import ControlPlan
from relaxc.wire.draws import geometric
from relaxc.wire.numbers import evaluate

ASYNC = -1
"""The delay of an `after async` (program/ir.py)."""


@dataclass(frozen=True)
class Entry:
    """A launch of an `after` that has not landed: the iteration in which it is due, and the rounds of the blocks that
    ran at its launch."""

    due: int
    rounds: Mapping[int, int]


@dataclass(frozen=True)
class Turn:
    """What control has decided for iteration `t`. `truths` are the guards', in their order; `rounds` the number of each
    running block's earlier runs, for an `after` its launch's; `landing` by guard the rounds at the landing launch."""

    t: int
    truths: tuple[bool, ...]
    rounds: Mapping[int, int]
    landing: Mapping[int, Mapping[int, int]]


@dataclass
class Counts:
    """What control remembers, by block: `waited` of an `every` since its last run, `reached` of a geometric one, `runs`
    of each block, and the queue of each `after`."""

    waited: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    queues: dict[int, list[Entry]] = field(default_factory=dict)


class Control:
    """`states` are the number states, shared with who commits them."""

    def __init__(self, plan: Sequence[ControlPlan], states: Mapping[str, float], workers: int, seed: int) -> None:
        self._plan, self._states, self._workers, self._seed = plan, states, workers, seed
        self.counts = Counts()
        self.lanes: Mapping[int, Any] = {}
        """By block of an `after async`, what it has under way (attach/lanes.py)."""

    def start_staggered(self, block: int, head: int) -> None:
        self.counts.waited[block] = head

    def turn(self, t: int, later: bool = False) -> Turn:
        """Evaluate the guards of iteration `t`, once for each iteration in order: counters and queues advance. `later`:
        what is asynchronous is decided by `arrive`; until then nothing of it lands and nothing is launched."""
        reading = _Reading(self, t, later)
        for step in self._plan:
            reading.take(step)
        return reading.turn()

    def arrive(self, turn: Turn) -> Turn:
        reading = _Reading(self, turn.t, False)
        reading.rounds, reading.landing = dict(turn.rounds), dict(turn.landing)
        guards = (step for step in self._plan if step.kind != "set")
        for step, truth in zip(guards, turn.truths, strict=True):
            reading.take_again(step, truth)
        return reading.turn()


class _Reading:
    """One evaluation from the top."""

    def __init__(self, control: Control, t: int, later: bool) -> None:
        self._later = later
        self._counts, self._seed, self._t = control.counts, control._seed, t  # noqa: SLF001 - its other half
        self._lanes = control.lanes
        self._states = control._states  # noqa: SLF001
        self.names = {**self._states, "t": float(t), "workers": float(control._workers)}  # noqa: SLF001
        self.truths: list[bool] = []
        self.blocks: list[int] = []
        self.rounds: dict[int, int] = {0: t}
        self.landing: dict[int, Mapping[int, int]] = {}

    def turn(self) -> Turn:
        return Turn(self._t, tuple(self.truths), self.rounds, self.landing)

    def take_again(self, step: ControlPlan, truth: bool) -> None:
        """With what was decided before, but for what is asynchronous."""
        if step.delay == ASYNC:
            self.take(step)
        else:
            self.blocks.append(step.block)
            self.truths.append(truth)

    def take(self, step: ControlPlan) -> None:
        inside = step.parent < 0 or self.truths[step.parent]
        if step.kind == "set":
            if inside:
                self._set(step.name, evaluate(step.value, self.names))
            return
        self.blocks.append(step.block)
        match step.kind:
            case "land" | "launch" if step.delay == ASYNC and self._later:
                self.truths.append(False)
            case "land" if step.delay == ASYNC:
                self.truths.append(self._arrived(step))
            case "land":
                self.truths.append(self._land(step, inside))
            case "launch":
                self.truths.append(inside and self._launches(step))
            case _:
                self.truths.append(inside and self._runs(step))

    def _set(self, name: str, value: float) -> None:
        if name in self._states:
            set_finite(self.names, name, value)
        else:  # a let
            self.names[name] = value

    def _runs(self, step: ControlPlan) -> bool:
        ran = self._counts.runs.get(step.block, 0)
        if not (self._due(step) if step.kind == "every" else self._on(step)):
            return False
        self.rounds[step.block] = ran
        self._counts.runs[step.block] = ran + 1
        return True

    def _on(self, phase: ControlPlan) -> bool:
        earlier = self._parent_round(phase)
        return phase.first <= earlier and (phase.end is None or earlier < phase.end)

    def _parent_round(self, step: ControlPlan) -> int:
        return self.rounds[0 if step.parent < 0 else self.blocks[step.parent]]

    def _due(self, every: ControlPlan) -> bool:
        period = evaluate(every.value, self.names)
        if every.how == "geometric":
            reached = self._counts.reached.get(every.block, 0)
            self._counts.reached[every.block] = reached + 1
            return geometric(self._seed, every.block, reached, period)
        waited = self._counts.waited.get(every.block, 0) + 1
        run = waited >= period
        self._counts.waited[every.block] = 0 if run else waited
        return run

    def _land(self, after: ControlPlan, launches: bool) -> bool:
        queue = self._counts.queues.setdefault(after.block, [])
        if launches:
            queue.append(Entry(self._t + after.delay, {**self.rounds, after.block: self._parent_round(after)}))
        if not queue or queue[0].due > self._t:
            return False
        entry = queue.pop(0)
        self.rounds[after.block] = entry.rounds[after.block]
        self.landing[len(self.truths)] = entry.rounds
        return True

    def _arrived(self, after: ControlPlan) -> bool:
        """Asks the lane, which alone knows."""
        lane = self._lanes[after.block]
        if not lane.lands(self._t, after.most):
            return False
        self.rounds[after.block] = lane.landing.number
        self.landing[len(self.truths)] = lane.landing.rounds
        return True

    def _launches(self, after: ControlPlan) -> bool:
        lane = self._lanes[after.block]
        if not lane.free:
            return False
        self.rounds[after.block] = lane.launch(self._t, self.rounds)
        return True


def set_finite(names: dict[str, float], name: str, value: float) -> None:
    """No state ever becomes non-finite."""
    if math.isfinite(value):
        names[name] = value


class Values(Mapping[str, float]):
    """The numbers of a path, each evaluated when it is first asked for: what reads `lr` must not be asked for before
    optimizer.step()."""

    def __init__(self, definitions: Sequence[tuple[str, Any]], known: Mapping[str, float]) -> None:
        self._definitions, self._known = dict(definitions), known
        self._found: dict[str, float] = {}

    def __getitem__(self, name: str) -> float:
        if name not in self._found:
            defined = name in self._definitions
            self._found[name] = evaluate(self._definitions[name], self) if defined else self._known[name]
        return self._found[name]

    def __iter__(self) -> Any:
        return iter({**self._definitions, **self._known})

    def __len__(self) -> int:
        return len({**self._definitions, **self._known})
