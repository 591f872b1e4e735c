"""The training loop in simulated time: forward, backward, step, and what the plan does in between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from relaxc.manifest import Manifest
from relaxc.schedule.predict_cohort import Cohort, Site
from relaxc.schedule.predict_costs import Costs
from relaxc.schedule.predict_machine import Busy, Machine, Thread
from relaxc.schedule.predict_programs import Programs
from relaxc.schedule.predict_queue import Launch, Load, Queue
from relaxc.schedule.profile import Profile
from relaxc.schedule.schedule import Schedule
from relaxc.wire.parameters import Parameter


@dataclass(frozen=True)
class Gradients:
    """The exchange of gradients: what leaves, and after which bucket's gradients it may."""

    schedule: Schedule
    loads: tuple[Load, ...]
    delays: tuple[int, ...]
    ready: tuple[tuple[float, int], ...]
    """(seconds after backward begins, bucket), ascending."""
    parameters: tuple[Parameter, ...]
    coded: tuple[bool, ...]

    @property
    def census(self) -> int:
        return len(self.schedule.buckets)

    def bytes_of(self, bucket: int) -> int:
        return sum(self.parameters[p].bytes for p in self.schedule.buckets[bucket].parameters)


def gradients_of(
    manifest: Manifest, profile: Profile, parameters: Sequence[Parameter], schedule: Schedule
) -> Gradients | None:
    """None where no gradients are exchanged."""
    if not schedule.buckets:
        return None
    plans = [manifest.bodies[bucket.body].gradient for bucket in schedule.buckets]
    exchanges = [plan.exchange if plan is not None else None for plan in plans]
    dense = iter(schedule.dense_bytes)
    loads: list[Load] = []
    for number, exchange in enumerate(exchanges):
        if exchange is None or exchange.codec is None:
            loads.append(Load(number, None, None, next(dense)))
        else:
            loads += [Load(number, piece, exchange) for piece in schedule.pieces if piece.bucket == number]
    loads += [Load(p.bucket, p, None) for p in schedule.pieces if p.bucket == len(exchanges)]
    return Gradients(
        schedule, tuple(loads), tuple(plan.delay if plan is not None else 0 for plan in plans),
        tuple(sorted((_ready(profile, bucket.parameters), n) for n, bucket in enumerate(schedule.buckets))),
        tuple(parameters), tuple(each is not None and each.codec is not None for each in exchanges),
    )  # fmt: skip


def _ready(profile: Profile, members: Sequence[int]) -> float:
    """When the last gradient of a bucket is there: at the end of backward, where one never is."""
    if profile.late_gradients:
        return profile.backward
    times = (profile.parameters[p].ready for p in members)
    return max(profile.backward if time is None else min(time, profile.backward) for time in times)


class Loop:
    """`began` are the starts of iterations, the end of the last one included."""

    def __init__(
        self, machine: Machine, costs: Costs, profile: Profile, queue: Queue, gradients: Gradients | None,
        programs: Programs, needs: Mapping[int, float] | None = None,
    ) -> None:  # fmt: skip
        """`needs` are when a forward first reads the weights of each bucket, where the tail is done bucket by
        bucket."""
        self._needs = needs
        self._machine, self._costs, self._profile, self._queue = machine, costs, profile, queue
        self._gradients, self._programs = gradients, programs
        self._past: deque[Launch] = deque()
        self._left: list[tuple[float, Cohort, Site]] = []
        """Of the last iteration's tail, by when the weights are needed."""
        self.began: list[float] = []

    def run(self, iterations: Callable[[int], bool]) -> Thread:
        """`iterations(n)` tells whether another follows n."""
        yield from self._programs.open()
        yield from self._programs.stage("begin")
        while iterations(len(self.began)):
            self.began.append(self._machine.now)
            yield from self._iteration()
        self.began.append(self._machine.now)

    def _iteration(self) -> Thread:
        yield from self._forward()
        yield from self._backward()
        yield from self._programs.stage("backward")
        yield from self._programs.stage("before")
        yield Busy(self._profile.step * self._share_stepped(), "compute", "step")
        yield from self._programs.stage("after")
        if self._needs is None or not self._programs.does("tail"):
            yield from self._programs.stage("tail")
            yield from self._go_on()
        else:
            self._left = [(self._needs[s.number], c, s) for c in self._programs.cohorts for s in c.sites]

    def _go_on(self) -> Thread:
        self._programs.commit()
        yield from self._programs.open()
        yield from self._programs.stage("begin")

    def _forward(self) -> Thread:
        done = 0.0
        for needed, cohort, site in sorted(self._left, key=lambda part: part[0]):
            yield Busy(needed - done, "compute", "forward")
            done = needed
            yield from self._programs.part(cohort, site, "tail")
        yield Busy(self._profile.forward - done, "compute", "forward")
        if self._left:
            self._left = []
            yield from self._go_on()

    def _share_stepped(self) -> float:
        """Of the elements, those that the user's own optimiser updates."""
        total = sum(p.elements for p in self._parameters) or 1
        left = sum(s.elements for c in self._programs.cohorts if not c.path.steps for s in c.sites)
        return 1 - left / total

    @property
    def _parameters(self) -> Sequence[Parameter]:
        members = [p for c in self._programs.cohorts for s in c.sites for p in s.members]
        return [*members, *(self._gradients.parameters if self._gradients is not None else ())]

    def _backward(self) -> Thread:
        exchange, done = self._gradients, 0.0
        if exchange is None:
            yield Busy(self._profile.backward, "compute", "backward")
            return
        launch = Launch(exchange.loads)
        self._queue.push(launch)
        for ready, bucket in exchange.ready:
            yield Busy(ready - done, "compute", "backward")
            done = ready
            yield from self._collect(exchange, bucket)
            if bucket in launch.ready:
                self._machine.set(launch.ready[bucket])
        yield Busy(self._profile.backward - done, "compute", "backward")
        if exchange.census in launch.ready:
            self._machine.set(launch.ready[exchange.census])
        self._past.append(launch)
        yield from self._land(exchange)

    def _collect(self, exchange: Gradients, bucket: int) -> Thread:
        """Gradients that are all-reduced, or wait for a late landing, are put into a buffer: read once, written
        once."""
        if not exchange.coded[bucket] or exchange.delays[bucket]:
            yield Busy(self._costs.local(exchange.bytes_of(bucket), 2, 1), "compute", "collect", bucket)

    def _land(self, exchange: Gradients) -> Thread:
        for bucket, delay in enumerate(exchange.delays):
            if len(self._past) <= delay:
                continue
            due = self._past[len(self._past) - 1 - delay]
            for number in (bucket, exchange.census):
                if number in due.landed:
                    yield due.landed[number]
            if delay:
                yield Busy(self._costs.local(exchange.bytes_of(bucket), 2, 1), "compute", "land", bucket)
        while len(self._past) > max(exchange.delays, default=0):
            self._past.popleft()
