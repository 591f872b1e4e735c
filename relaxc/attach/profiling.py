"""`relaxed.profile`: torch's profiler around some iterations, and a timeline of what it saw."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
from torch._compile import _disable_dynamo
from torch.profiler import ProfilerActivity, profile, record_function

from relaxc.attach.attached import Attached
from relaxc.errors import ExchangeError
from relaxc.schedule.schedule import first_site
from relaxc.schedule.timeline_file import TimelineFile, write_timeline
from relaxc.schedule.timeline_ranges import BACKWARD, BEGIN, BETWEEN, MARK, PREFIX, STEP, Range, timeline_of


class Profiling:
    """Marks where in an iteration the loop is, and ends the profiler behind `iterations` of them."""

    def __init__(self, attached: Attached, optimizers: Sequence[torch.optim.Optimizer], iterations: int) -> None:
        self._attached, self._optimizers, self._left = attached, optimizers, iterations
        self._profiler = profile(activities=[ProfilerActivity.CPU])
        self._stepped = True
        self._running = False
        self._hooks: list[Any] = []

    def start(self) -> None:
        model = self._attached.model
        self._hooks = [
            model.register_forward_pre_hook(self._before_forward, prepend=True),
            model.register_forward_hook(self._after_forward),
            self._optimizers[0].register_step_pre_hook(self._before_step),
            self._optimizers[-1].register_step_post_hook(self._after_step),
        ]
        self._profiler.start()
        self._running = True

    def stop(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks = []
        if self._running:
            self._mark(BEGIN if self._stepped else BETWEEN)
            self._end()

    def _end(self) -> None:
        self._running = False
        self._profiler.stop()

    @_disable_dynamo
    def _before_forward(self, *_: Any) -> None:
        if not self._running or not torch.is_grad_enabled():
            return
        self._mark(BEGIN if self._stepped else "forward")
        if self._stepped:
            self._stepped = False
            self._left -= 1
            if self._left < 0:
                self._end()

    @_disable_dynamo
    def _after_forward(self, *_: Any) -> None:
        if torch.is_grad_enabled():
            self._mark(BACKWARD)

    def _before_step(self, *_: Any) -> None:
        self._mark(STEP)

    def _after_step(self, *_: Any) -> None:
        self._mark(BETWEEN)
        self._stepped = True

    def _mark(self, what: str) -> None:
        if self._running:
            with record_function(MARK + what):
                pass

    def ranges(self) -> list[Range]:
        """In seconds."""
        return [
            Range(e.name, e.time_range.start * 1e-6, e.time_range.end * 1e-6, e.thread)
            for e in self._profiler.events() or ()  # type: ignore[no-untyped-call]
            if e.name.startswith(PREFIX)
        ]


@contextmanager
def profiled(
    attached: Attached, optimizers: Sequence[torch.optim.Optimizer], path: Path, iterations: int, rank: int
) -> Iterator[None]:
    """Relaxed.profile says what it does."""
    if iterations < 1:
        raise ExchangeError("RX0640", f"a profile of {iterations} iterations", "give a number from 1 up")
    if attached.groups.rank != rank:
        yield
        return
    if torch._C._autograd._profiler_enabled():  # noqa: SLF001 - no public way to it
        raise ExchangeError(
            "RX0640",
            "torch's profiler is at work already, and there can be one",
            "end it first",
        )
    profiling = Profiling(attached, optimizers, iterations)
    profiling.start()
    try:
        yield
    except BaseException:
        with suppress(Exception):
            profiling.stop()
        raise
    profiling.stop()
    write_timeline(path, _measured(attached, profiling.ranges()))


def _measured(attached: Attached, ranges: Sequence[Range]) -> TimelineFile:
    manifest, schedule = attached.manifest, attached.schedule
    try:
        timeline, count = timeline_of(ranges, first_site(schedule), _varies(attached))
    except ValueError:
        raise ExchangeError(
            "RX0640", "within profile() there was no whole iteration",
            "put a loop into it whose forward goes through the attached model, and which steps",
        ) from None  # fmt: skip
    return TimelineFile(timeline, "measured", manifest.spec, manifest.hash, schedule.workers, schedule.rank, count)


def _varies(attached: Attached) -> bool:
    """Whether some iterations exchange more than others."""
    return any(b.program is not None and b.program.control for b in attached.manifest.bodies)
