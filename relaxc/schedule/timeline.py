"""An iteration in lanes: what is busy when. Predicted and measured ones have the same form."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

LANES = ("compute", "encode", "link", "decode")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that keeps a lane busy from `start` to `end`, in seconds after the iteration begins. `bucket` is -1
    where there is none."""

    lane: str
    start: float
    end: float
    label: str
    bucket: int = -1


@dataclass(frozen=True, slots=True)
class Timeline:
    """`iteration` is the time from one iteration to the next, `alone` what it would be without an exchange, `bound`
    the lane that the rest waits for. Where an exchange runs only in some iterations, times are means over a period
    and spans those of an iteration that exchanges."""

    spans: tuple[Span, ...]
    iteration: float
    alone: float
    bound: str

    @property
    def exposed(self) -> float:
        return max(self.iteration - self.alone, 0.0)

    @property
    def length(self) -> float:
        """Of what the spans show, which is one iteration and may be longer than the mean."""
        return max([self.iteration, *(span.end for span in self.spans)])


def busy(spans: Iterable[Span], lane: str) -> float:
    """Seconds in which a lane has something to do; what overlaps counts once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted((s.start, s.end) for s in spans if s.lane == lane):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def bound_of(spans: Sequence[Span]) -> str:
    """The lane that is busy longest: the others have time to wait for it."""
    return max(LANES, key=lambda lane: busy(spans, lane))


def cut(spans: Iterable[Span], windows: Sequence[tuple[float, float]]) -> list[list[Span]]:
    """What of the spans lies in each window; those that cross a border are cut there. Windows follow one another."""
    found: list[list[Span]] = [[] for _ in windows]
    starts = [start for start, _ in windows]
    for span in spans:
        number = max(bisect_right(starts, span.start) - 1, 0)
        while number < len(windows) and windows[number][0] < span.end:
            start, end = max(span.start, windows[number][0]), min(span.end, windows[number][1])
            if end > start:
                found[number].append(replace(span, start=start, end=end))
            number += 1
    return found


def merged(spans: Iterable[Span], gap: float) -> list[Span]:
    """Neighbours of the same lane and bucket with at most `gap` seconds between them as one, for drawing."""
    result: list[Span] = []
    last: dict[tuple[str, int, str], int] = {}
    for span in sorted(spans, key=lambda s: (s.start, s.end)):
        what = span.label if span.lane != "link" else ""
        key = (span.lane, span.bucket, what)
        if key in last and span.start <= result[last[key]].end + gap:
            before = result[last[key]]
            result[last[key]] = replace(before, end=max(before.end, span.end))
            continue
        last[key] = len(result)
        result.append(span)
    return result
