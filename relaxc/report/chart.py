"""Lanes as a small text chart, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.report.times import shown
from relaxc.schedule.timeline import LANES, Span, Timeline, busy

SHADES = " ░▒▓█"
"""By how much of a column's time the lane is busy."""
NAME_WIDTH = max(map(len, LANES))


def chart(timeline: Timeline, width: int = 64) -> str:
    """A line for each lane, a column for each part of the iteration that the spans show, and the times below."""
    lines = [f"  {lane:<{NAME_WIDTH}} │{_row(timeline, lane, width)}│" for lane in LANES]
    end = shown(timeline.length)
    axis = f"  {'':<{NAME_WIDTH}} 0{end:>{width}}"
    return "\n".join([*lines, axis]) + "\n"


def _row(timeline: Timeline, lane: str, width: int) -> str:
    spans = [s for s in timeline.spans if s.lane == lane]
    column = timeline.length / width
    shares = _shares(spans, width, column) if column > 0 else [0.0] * width
    return "".join(SHADES[_shade(share)] for share in shares)


def _shade(share: float) -> int:
    """Nothing is blank, whatever is busy at all is not."""
    return 0 if share <= 0 else max(1, min(len(SHADES) - 1, round(share * (len(SHADES) - 1))))


def _shares(spans: Sequence[Span], width: int, column: float) -> list[float]:
    """Of each column, how much of it the lane is busy."""
    found = [0.0] * width
    until = 0.0
    for start, end in sorted((s.start, s.end) for s in spans):
        first = max(start, until)
        until = max(until, end)
        for number in range(int(first / column), min(int(end / column) + 1, width)):
            inside = min(end, (number + 1) * column) - max(first, number * column)
            found[number] += max(inside, 0.0) / column
    return found


def summary(timeline: Timeline) -> Iterator[tuple[str, str]]:
    """What a table says: names and times."""
    yield "iteration", shown(timeline.iteration)
    yield "without an exchange", shown(timeline.alone)
    yield "exposed", f"{shown(timeline.exposed)} ({timeline.exposed / (timeline.iteration or 1):.0%} of the iteration)"
    for lane in LANES:
        yield f"{lane} busy", shown(busy(timeline.spans, lane))
    yield "bound by", timeline.bound
