"""The device's clock asks only when the device is done; a stand-in for events of CUDA keeps the order."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from relaxc.schedule.trace.clock import DeviceClock, HostClock, clock_of

DEVICE = torch.device("cuda", 0)


class Event:
    """Marks its place in the stream; its time is there once the device has been waited for."""

    done: ClassVar[list[str]] = []
    count = 0

    def __init__(self, enable_timing: bool = False) -> None:
        assert enable_timing

    def record(self, stream: str) -> None:
        Event.count += 1
        self.at, self.stream = Event.count, stream

    def elapsed_time(self, end: Event) -> float:
        assert Event.done and self.stream == end.stream == "stream of cuda:0"
        return 1000.0 * (end.at - self.at)


def test_marks_of_a_device_are_compared_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"stream of {device}")
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: Event.done.append(str(device)))
    clock = DeviceClock(DEVICE)
    with clock.running():
        first, _, last = clock.mark(), clock.mark(), clock.mark()
        assert Event.done == []
    assert Event.done == ["cuda:0"] and clock.between(first, last) == 2.0


def test_which_clock() -> None:
    assert isinstance(clock_of(DEVICE), DeviceClock) and isinstance(clock_of(torch.device("cpu")), HostClock)
    clock = HostClock()
    assert clock.between(clock.mark(), clock.mark()) >= 0
