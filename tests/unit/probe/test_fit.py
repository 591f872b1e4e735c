"""Lines through times: exact ones are found, and none goes below 0."""

from __future__ import annotations

import pytest

from relaxc.probe.fit import fit
from relaxc.probe.links import BULK, MOST, SIZES, busy, measured
from relaxc.schedule.network import Line

LINE = Line(2e-4, 8e-9)


def test_times_on_a_line_give_that_line() -> None:
    found = fit({size: LINE.at(size) for size in SIZES})
    assert found.line.fixed == pytest.approx(LINE.fixed, rel=1e-9) and found.line.each == pytest.approx(
        LINE.each, rel=1e-9
    )
    assert found.error == pytest.approx(0, abs=1e-9)


def test_each_time_counts_by_its_own_size() -> None:
    """One long message that took twice as long doesn't change what short ones cost."""
    times = {size: LINE.at(size) for size in SIZES}
    times[SIZES[-1]] *= 2
    found = fit(times)
    assert found.line.fixed == pytest.approx(LINE.fixed, rel=0.05) and LINE.each < found.line.each < 2 * LINE.each
    shares = [found.line.at(size) / time - 1 for size, time in times.items()]
    assert found.error == pytest.approx((sum(s * s for s in shares) / len(shares)) ** 0.5)


def test_the_least_squares_of_relative_errors() -> None:
    """Minimised by brute force over a grid around what is found."""
    times = {1: 1.1, 10: 1.8, 100: 11.5, 1000: 99.0}
    found = fit(times)
    for fixed in (-1e-3, 0.0, 1e-3):
        for each in (-1e-5, 0.0, 1e-5):
            other = Line(found.line.fixed + fixed, found.line.each + each)
            assert sum((other.at(n) / t - 1) ** 2 for n, t in times.items()) >= 4 * found.error**2 - 1e-15


def test_neither_part_is_below_0() -> None:
    assert fit({1000: 1.0, 2000: 3.0, 4000: 8.0}).line.fixed == 0.0
    falling = fit({1000: 4.0, 2000: 2.0, 4000: 1.0}).line
    assert falling.each == 0.0 and falling.fixed > 0


def test_one_size_alone() -> None:
    assert fit({1024: 1e-3}).line == Line(0.0, pytest.approx(1e-3 / 1024))


# --- the sizes and repetitions of a measurement, by a clock of our own


class Wire:
    """Takes what its line says, by its own clock."""

    def __init__(self, line: Line) -> None:
        self.line, self.asked, self.now = line, [], 0.0

    def __call__(self, size: int) -> float:
        self.asked.append(size)
        self.now += self.line.at(size)
        return self.line.at(size)

    def clock(self) -> float:
        return self.now


class Shaped(Wire):
    """An idle one passes a burst at once, a token bucket's; its message before this one has just ended."""

    BURST = 80_000

    def __call__(self, size: int) -> float:
        fresh = 0 if self.asked and self.asked[-1] >= self.BURST else self.BURST
        self.asked.append(size)
        return self.line.at(max(0, size - fresh))


def test_a_quick_link_is_measured_in_full() -> None:
    wire = Wire(Line(1e-5, 1e-10))
    assert measured(2.0, wire, wire.clock) == {size: wire.line.at(size) for size in SIZES}
    assert len(wire.asked) == MOST * len(SIZES)
    assert wire.asked[: len(SIZES)] == list(SIZES) == wire.asked[len(SIZES) : 2 * len(SIZES)]


def test_a_slow_link_is_measured_in_its_time() -> None:
    wire = Wire(Line(0.0, 8e-6))
    times = measured(2.0, wire, wire.clock)
    assert list(times) == list(SIZES[:3])
    assert sum(wire.line.at(size) for size in wire.asked) < 2 * 2.0


def test_a_disturbance_of_one_repetition_is_not_in_the_median() -> None:
    wire, calls = Wire(Line(1e-5, 1e-10)), iter(range(10**6))
    times = measured(2.0, lambda size: wire(size) * (50 if next(calls) // len(SIZES) == 2 else 1), wire.clock)
    assert times == {size: wire.line.at(size) for size in SIZES}


def test_a_link_is_measured_busy() -> None:
    wire = Shaped(Line(1e-4, 8e-8))
    times = measured(2.0, busy(wire, 2.0))
    assert times == {size: wire.line.at(size) for size in SIZES}
    assert fit(times).line.each == pytest.approx(8e-8)


def test_on_a_slow_link_less_goes_before() -> None:
    wire = Wire(Line(0.0, 8e-7))
    once = busy(wire, 2.0)
    once(1024)
    assert wire.asked == [SIZES[0], BULK, pytest.approx(2.0 / 64 / 8e-7, abs=1), 1024]
