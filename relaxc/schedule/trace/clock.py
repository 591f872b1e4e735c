"""What time it is: on the host, or on a device whose kernels run behind it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

import torch


class Clock(Protocol):
    """A mark is a moment. Marks are taken within `running`; what lies between two of them is asked after it."""

    def mark(self) -> Any: ...

    def between(self, start: Any, end: Any) -> float:
        """Seconds."""

    def running(self) -> AbstractContextManager[Any]: ...


class HostClock:
    def mark(self) -> float:
        return time.perf_counter()

    def between(self, start: float, end: float) -> float:
        return end - start

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()


class DeviceClock:
    """Moments in the device's current stream, so that nothing waits for the device meanwhile."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def mark(self) -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record(torch.cuda.current_stream(self._device))
        return event

    def between(self, start: torch.cuda.Event, end: torch.cuda.Event) -> float:
        milliseconds: float = start.elapsed_time(end)
        return milliseconds / 1000

    @contextmanager
    def running(self) -> Iterator[None]:
        yield
        torch.cuda.synchronize(self._device)


def clock_of(device: torch.device) -> Clock:
    return DeviceClock(device) if device.type == "cuda" else HostClock()
