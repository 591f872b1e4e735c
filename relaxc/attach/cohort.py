"""Parameters of one body that run in step: the same settings of the optimiser, the same head start, so the same path.

A cohort keeps the numbers of its program and knows in each iteration which path is taken and which copies are meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from relaxc.attach.calls import Copies, Site
from relaxc.attach.lanes import Lane
from relaxc.attach.partners import OwnWeights, Partners
from relaxc.manifest import FragmentPlan, PathPlan, ProgramPlan
from relaxc.schedule.control import ASYNC, Control, Turn, Values, set_finite
from relaxc.wire.numbers import evaluate


@dataclass(frozen=True)
class Worker:
    rank: int
    workers: int
    seed: int


@dataclass(frozen=True)
class Settings:
    """Where `lr` and `optimizer.NAME` are read: one group of the user's optimiser."""

    optimizer: Any
    group: int

    def read(self, name: str) -> float:
        return float(self.optimizer.param_groups[self.group][name.removeprefix("optimizer.")])


Own = Callable[[str, Mapping[int, int]], float]
"""A worker's weight on itself, by the name own.N, in these rounds."""


class Known(Mapping[str, float]):
    """The numbers that a path's own are made of: what is asked for is read then."""

    def __init__(self, fixed: Mapping[str, float], settings: Settings | None, own: Own, turn: Turn) -> None:
        self._fixed, self._settings, self._own, self._turn = fixed, settings, own, turn

    def __getitem__(self, name: str) -> float:
        if name in self._fixed:
            return self._fixed[name]
        if name.startswith("own."):
            return self._own(name, self._turn.rounds)
        if self._settings is None:
            raise KeyError(name)
        return self._settings.read(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fixed)

    def __len__(self) -> int:
        return len(self._fixed)


class Cohort:
    """`sites` are its buckets. `t` counts iterations."""

    def __init__(
        self, program: ProgramPlan, sites: Sequence[Site], settings: Settings | None, worker: Worker,
    ) -> None:  # fmt: skip
        self.program, self.sites, self.settings, self.worker = program, tuple(sites), settings, worker
        self.t = 0
        self.numbers: dict[str, float] = {}
        self.captured: dict[tuple[int, int], dict[str, float]] = {}
        """By block of an `after` and iteration of its launch: the numbers that its landing reads."""
        self.partners = [Partners(t.exchange, worker.workers, worker.rank, worker.seed) for t in program.transfers]
        self._own = OwnWeights(program.owns, worker.workers, worker.rank, worker.seed)
        self._paths = {path.guards: path for path in program.paths}
        self._guards = [c for c in program.control if c.kind != "set"]
        self._launchers = launchers(program)
        self._late = decides_late(program)
        self.control = Control(program.control, self.numbers, worker.workers, worker.seed)
        self.lanes: Mapping[int, Lane] = {}
        """By block of an `after async`."""
        self._begin_numbers()

    def use(self, lanes: Mapping[int, Lane]) -> None:
        self.lanes = self.control.lanes = lanes

    def _own_weight(self, name: str, rounds: Mapping[int, int]) -> float:
        topology, block = self.program.owns[int(name.removeprefix("own."))]
        if block not in self.lanes:
            return self._own(name, rounds)
        of = next(n for n, t in enumerate(self.program.transfers) if t.exchange.topology == topology)
        return self.lanes[block].own_weight(of, self.worker.rank)

    @property
    def fixed(self) -> dict[str, float]:
        """Numbers that don't change within an iteration."""
        worker = self.worker
        return {**self.numbers, "t": float(self.t), "workers": float(worker.workers), "rank": float(worker.rank)}

    def _begin_numbers(self) -> None:
        for state in self.program.states:
            if state.shape == "number":
                self.numbers[state.name] = evaluate(state.initial, self.fixed)

    # --- one iteration

    def open_start(self) -> None:
        """Before the first iteration: what start fragments may read."""
        self.turn = Turn(0, (), {0: 0}, {})
        self.values = Values((), Known(self.fixed, None, self._own_weight, self.turn))

    def open(self) -> None:
        """Decide iteration `t`, what is asynchronous as late as it may be."""
        self._take(self.control.turn(self.t, later=self._late))

    def arrive(self) -> None:
        """The last moment to see what has arrived: the user's optimiser is about to step."""
        if self._late:
            self._take(self.control.arrive(self.turn))

    def _take(self, turn: Turn) -> None:
        self.turn = turn
        self.path: PathPlan = self._paths[self.turn.truths]
        landed = {name: value for values in self._landing() for name, value in values.items()}
        known = Known({**self.fixed, **landed}, self.settings, self._own_weight, self.turn)
        self.values = Values(self.path.numbers, known)

    def open_landing(self, lane: Lane) -> None:
        """What has arrived lands by itself, between two iterations."""
        assert lane.landing is not None
        self.path = next(p for p in self.program.landings if self._lands(p) == lane.block)
        guard = next(n for n, true in enumerate(self.path.guards) if true)
        rounds = {0: self.t, lane.block: lane.landing.number}
        self.turn = Turn(self.t, self.path.guards, rounds, {guard: lane.landing.rounds})
        captured = self.captured.pop((lane.block, lane.landing.t), {})
        self.values = Values(
            self.path.numbers, Known({**self.fixed, **captured}, self.settings, self._own_weight, self.turn)
        )

    def _lands(self, path: PathPlan) -> int:
        return next(self._guards[n].block for n, true in enumerate(path.guards) if true)

    def commit_landing(self) -> None:
        for state, last in self.path.states:
            set_finite(self.numbers, state, self.values[last])
        for lane in self.lanes.values():
            lane.landed(self.t, "settle")

    def _landing(self) -> Iterator[dict[str, float]]:
        for guard in self.turn.landing:
            block, delay = self._guards[guard].block, self._guards[guard].delay
            launched = self.lanes[block].landed_from if delay == ASYNC else self.t - delay
            yield self.captured.pop((block, launched), {})

    def settle(self) -> None:
        """Read all that the path reads of the optimiser: nothing of this iteration must see a later rate."""
        numbers = [value for _, value in self.path.numbers] + [value for _, _, value in self.path.captures]
        numbers += [number for fragment in self._fragments() for number in fragment.numbers]
        for number in numbers:
            evaluate(number, self.values)

    def _fragments(self) -> Iterator[FragmentPlan]:
        for operations in self.path.stages.values():
            yield from (self.program.fragments[o.number] for o in operations if o.kind == "compute")

    def commit(self) -> None:
        """End the iteration: number states take their last values, what launches captures its numbers."""
        path = self.path
        for block, name, value in path.captures:
            launched = self.captured.setdefault((block, self.t), {})
            launched[name] = evaluate(value, self.values)
        for state, last in path.states:
            set_finite(self.numbers, state, self.values[last])
        for lane in self.lanes.values():
            lane.stage_done("commit", path)
            lane.landed(self.t)
        self.t += 1

    def numbers_of(self, fragment: FragmentPlan) -> list[float]:
        return [evaluate(number, self.values) for number in fragment.numbers]

    def stage(self, name: str) -> tuple[Any, ...]:
        return self.path.stages.get(name, ())

    # --- copies

    def copies(self, names: Sequence[str], late: Sequence[str]) -> Copies:
        """For those of `names` of which there are several copies, which one is meant."""
        return {name: self.copy(name, name in late) for name in names if self._count(name) > 1}

    def copy(self, name: str, late: bool) -> int:
        count = self._count(name)
        if count == 1:
            return 0
        guard = self._launchers.get(name, -1)
        rounds = self.turn.landing[guard] if late else self.turn.rounds
        return rounds.get(self._block(name, guard), 0) % count

    def _block(self, name: str, guard: int) -> int:
        kind, _, number = name.partition(".")
        if kind == "slot":
            return self.program.transfers[int(number)].block
        parent = self._guards[guard].parent if guard >= 0 else -1
        return self._guards[parent].block if parent >= 0 else 0

    def _count(self, name: str) -> int:
        kind, _, number = name.partition(".")
        if not number.isdigit() or kind not in ("kept", "slot"):
            return 1
        return (self.program.kept if kind == "kept" else self.program.transfers)[int(number)].copies


def decides_late(program: ProgramPlan) -> bool:
    """Whether what is asynchronous makes no difference before the optimiser steps: neither to what is done nor to other
    guards."""
    guards = [c for c in program.control if c.kind != "set"]
    free = {n for n, guard in enumerate(guards) if guard.delay == ASYNC}
    if not free or any(c.parent in free for c in program.control):
        return False
    early: dict[Any, Any] = {}
    for path in program.paths:
        others = tuple(truth for n, truth in enumerate(path.guards) if n not in free)
        begun = [path.stages.get(stage, ()) for stage in ("begin", "backward")]
        if early.setdefault(others, begun) != begun:
            return False
    return True


def launchers(program: ProgramPlan) -> dict[str, int]:
    """By name of a kept.N or slot.N that is read late, the guard of the `after` that reads it: the one that lands in
    each path where it is read."""
    guards = [c for c in program.control if c.kind != "set"]
    found: dict[str, set[int]] = {}
    for path in program.paths:
        landing = {g for g, true in enumerate(path.guards) if true and guards[g].kind == "land"}
        for name in _late_names(program, path):
            found[name] = found.get(name, landing) & landing
    return {name: min(among, key=lambda g: (_parent_block(guards, g) != _own_block(program, name), g))
            for name, among in found.items() if among}  # fmt: skip


def _late_names(program: ProgramPlan, path: PathPlan) -> Iterator[str]:
    for operations in path.stages.values():
        for operation in operations:
            if operation.kind == "compute":
                yield from program.fragments[operation.number].late
            elif operation.late:
                yield f"slot.{operation.number}"


def _parent_block(guards: Sequence[Any], guard: int) -> int:
    parent = guards[guard].parent
    return int(guards[parent].block) if parent >= 0 else 0


def _own_block(program: ProgramPlan, name: str) -> int:
    kind, _, number = name.partition(".")
    return program.transfers[int(number)].block if kind == "slot" else -1
