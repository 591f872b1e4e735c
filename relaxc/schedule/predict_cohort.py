"""What a program does in simulated iterations: which path its parameters take, and what is under way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relaxc.manifest import OperationPlan, PathPlan, ProgramPlan
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.control import Control, Turn, Values, set_finite
from relaxc.schedule.predict_queue import Launch, Queue
from relaxc.wire.numbers import evaluate
from relaxc.wire.parameters import Parameter

UNKNOWN = 1.0
"""What stands for a setting of the optimiser, which no prediction knows: periods and phases don't depend on any."""


@dataclass(frozen=True)
class Site:
    number: int
    bucket: Bucket
    members: tuple[Parameter, ...]

    @property
    def elements(self) -> int:
        return sum(p.elements for p in self.members)


@dataclass
class Flight:
    """A launch of an `after async`."""

    number: int
    t: int
    rounds: Mapping[int, int]
    launches: list[Launch] = field(default_factory=list)

    @property
    def arrived(self) -> bool:
        return bool(self.launches) and all(launch.over.time is not None for launch in self.launches)


class Lane:
    """What control asks about an asynchronous block. Partners are always ready: all workers do alike."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.launched = 0
        self.flight: Flight | None = None
        self.landing: Flight | None = None

    def lands(self, t: int, most: int) -> bool:
        self.landing = None
        flight = self.flight
        if flight is not None and flight.launches and (flight.arrived or 0 < most <= t - flight.t):
            self.landing, self.flight = flight, None
        return self.landing is not None

    @property
    def free(self) -> bool:
        return self.flight is None and self.landing is None

    def launch(self, t: int, rounds: Mapping[int, int]) -> int:
        self.flight = Flight(self.launched, t, dict(rounds))
        self.launched += 1
        return self.flight.number


class Cohort:
    """Parameters with the same body and head starts. `turn` and `path` are the iteration's."""

    def __init__(
        self, program: ProgramPlan, sites: Sequence[Site], heads: Sequence[tuple[int, int]],
        lanes: Mapping[int, Lane], workers: int, rank: int, seed: int,
    ) -> None:  # fmt: skip
        self.program, self.sites, self.lanes = program, tuple(sites), lanes
        self._fixed = {"workers": float(workers), "rank": float(rank)}
        self._numbers: dict[str, float] = {}
        self._paths = {path.guards: path for path in program.paths}
        self.t = _settled(program)
        for state in program.states:
            if state.shape == "number":
                self._numbers[state.name] = evaluate(state.initial, self._known())
        self._control = Control(program.control, self._numbers, workers, seed)
        self._control.lanes = lanes
        for block, head in heads:
            self._control.start_staggered(block, head)
        self.turn = Turn(self.t, (), {0: self.t}, {})
        self.path: PathPlan = program.paths[0]

    def _known(self) -> _Known:
        return _Known({**self._fixed, **self._numbers, "t": float(self.t)})

    def open(self) -> Iterator[Launch]:
        """Decide the iteration. What is returned has to be waited for first."""
        self.turn = self._control.turn(self.t)
        self.path = self._paths[self.turn.truths]
        for lane in self.lanes.values():
            yield from lane.landing.launches if lane.landing is not None else ()

    def commit(self) -> None:
        values = Values(self.path.numbers, self._known())
        for state, last in self.path.states:
            set_finite(self._numbers, state, values[last])
        self.t += 1

    def stage(self, name: str) -> tuple[OperationPlan, ...]:
        return self.path.stages.get(name, ())


class _Known(dict[str, float]):
    def __missing__(self, name: str) -> float:
        return UNKNOWN


def _settled(program: ProgramPlan) -> int:
    """The first iteration of the body's last phase, which is how it goes on."""
    return max((c.end for c in program.control if c.kind == "phase" and c.parent < 0 and c.end is not None), default=0)


def periods(program: ProgramPlan, workers: int) -> list[int]:
    """After how many iterations each of its `every` comes round; of random ones, how many tell of their mean."""
    known = _Known({"workers": float(workers), "t": 0.0})
    for state in program.states:
        if state.shape == "number":
            known[state.name] = evaluate(state.initial, known)
    every = [c for c in program.control if c.kind == "every"]
    return [max(1, round(evaluate(c.value, known))) * (DRAWS if c.how == "geometric" else 1) for c in every]


DRAWS = 8
"""Mean periods of a random `every` that are looked at."""
