"""One worker in simulated time: threads that share its cores, and wait for one another and for messages.

A thread is a generator that yields what it needs next: `Busy` seconds of a core, or a `Mark` that somebody else sets.
Where more threads are busy than there are cores, they share them evenly.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Generator
from dataclasses import dataclass, field

from relaxc.schedule.timeline import Span

TINY = 1e-12
"""Seconds by which two moments count as one: sums of floats differ by more than nothing."""


@dataclass(frozen=True, slots=True)
class Busy:
    """Seconds of a core for something that is shown in a lane, where it has one."""

    seconds: float
    lane: str
    label: str
    bucket: int = -1


@dataclass(eq=False)
class Mark:
    """Something that comes about once. `time` is when, None before."""

    time: float | None = None
    waiting: list[Thread] = field(default_factory=list)


Need = Busy | Mark
Thread = Generator[Need, None, None]


@dataclass(eq=False, slots=True)
class _Task:
    thread: Thread
    need: Busy
    began: float
    left: float


class Machine:
    """`spans` are what its threads did, in the order in which it ended."""

    def __init__(self, cores: int) -> None:
        self.now = 0.0
        self.spans: list[Span] = []
        self._cores = cores
        self._runnable: list[Thread] = []
        self._busy: list[_Task] = []
        self._alarms: list[tuple[float, int, Mark]] = []
        self._count = itertools.count()

    def start(self, thread: Thread) -> None:
        self._runnable.append(thread)

    def set(self, mark: Mark) -> None:
        if mark.time is None:
            mark.time = self.now
            self._runnable += mark.waiting
            mark.waiting = []

    def at(self, time: float) -> Mark:
        """A mark that is set then, which may be now."""
        mark = Mark()
        if time <= self.now + TINY:
            mark.time = self.now
        else:
            heapq.heappush(self._alarms, (time, next(self._count), mark))
        return mark

    def run(self) -> None:
        """Until nobody can go on."""
        while self._go_on():
            pass

    def _go_on(self) -> bool:
        while self._runnable:
            self._advance(self._runnable.pop(0))
        if not self._busy and not self._alarms:
            return False
        speed = min(1.0, self._cores / len(self._busy)) if self._busy else 1.0
        next_end = min((task.left for task in self._busy), default=math.inf) / speed
        alarm = self._alarms[0][0] - self.now if self._alarms else math.inf
        self._pass(min(next_end, max(alarm, 0.0)), speed)
        return True

    def _advance(self, thread: Thread) -> None:
        """To what it waits for next."""
        for need in thread:
            if isinstance(need, Busy):
                if need.seconds <= 0:
                    continue
                self._busy.append(_Task(thread, need, self.now, need.seconds))
                return
            if need.time is None:
                need.waiting.append(thread)
                return

    def _pass(self, seconds: float, speed: float) -> None:
        self.now += seconds
        for task in self._busy:
            task.left -= seconds * speed
        ended = [task for task in self._busy if task.left <= TINY]
        if ended:
            self._busy = [task for task in self._busy if task.left > TINY]
        for task in ended:
            need = task.need
            if need.lane:
                self.spans.append(Span(need.lane, task.began, self.now, need.label, need.bucket))
            self._runnable.append(task.thread)
        while self._alarms and self._alarms[0][0] <= self.now + TINY:
            self.set(heapq.heappop(self._alarms)[2])
