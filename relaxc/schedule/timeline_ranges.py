"""A measured timeline, out of the ranges that a profiler saw: which lane each is of, and when links were busy.

On the threads of queues: `relaxc::encode/bucketN`, `reduce`, `decode`; `send` when something leaves and `receive` while
the queue waits for something, so a link is busy while more has left than has arrived. On the loop's thread: kernels of
programs, and `relaxc::wait`; what is left there is computation. Marks of the loop say where iterations begin, and what
part of one is under way.
"""

from __future__ import annotations

import itertools
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from relaxc.schedule.timeline import Span, Timeline, bound_of, busy, cut

PREFIX = "relaxc::"
MARK = "relaxc::mark/"
FORWARD, BACKWARD, STEP, BETWEEN, BEGIN = "forward", "backward", "step", "between", "begin"
LANE_OF = {"encode": "encode", "reduce": "decode", "decode": "decode", "check": "decode", "update": "compute"}
"""By the first word of a range. A `reduce` decodes and encodes: all of it counts where predictions have most of it."""
_NAME = re.compile(r"relaxc::(\w+)(?:/(bucket|site)(\d+))?$")


@dataclass(frozen=True, slots=True)
class Range:
    """Of one thread, in seconds of any clock."""

    name: str
    start: float
    end: float
    thread: int


def timeline_of(ranges: Sequence[Range], first_site: int, varies: bool) -> tuple[Timeline, int]:
    """And of how many whole iterations it is made. Buckets of programs are numbered from `first_site`. Times are
    medians over the iterations, or where what is exchanged `varies` between them means; spans are those of the whole
    iteration whose time is nearest, or of the one that sends most.

    Raise ValueError where there is no whole iteration.
    """
    marks = sorted((r for r in ranges if r.name.startswith(MARK)), key=lambda r: r.start)
    began = [m.start for m in marks if m.name == MARK + BEGIN]
    windows = list(itertools.pairwise(began))
    if not windows:
        raise ValueError("no whole iteration")
    spans = cut(_spans(ranges, marks, first_site), windows)
    lengths = [end - start for start, end in windows]
    alone = [sum(s.end - s.start for s in one if s.lane == "compute") for one in spans]
    middle = statistics.mean if varies else statistics.median
    iteration = middle(lengths)
    shown = (
        max(range(len(windows)), key=lambda n: busy(spans[n], "link")) if varies else _whole(spans, lengths, iteration)
    )
    start = windows[shown][0]
    moved = tuple(replace(s, start=s.start - start, end=s.end - start) for s in spans[shown])
    bound = bound_of([s for one in spans for s in one])
    return Timeline(moved, iteration, min(middle(alone), iteration), bound), len(windows)


def _whole(spans: Sequence[Sequence[Span]], lengths: Sequence[float], iteration: float) -> int:
    """The iteration of the time nearest to `iteration`, of those in which most is seen: a queue that was held up over
    the end of an iteration begins in the next one."""
    seen = [len({(s.lane, s.bucket) for s in one}) for one in spans]
    return min(range(len(lengths)), key=lambda n: (-seen[n], abs(lengths[n] - iteration), n))


def _spans(ranges: Sequence[Range], marks: Sequence[Range], first_site: int) -> Iterator[Span]:
    loop = next(m.thread for m in marks)
    queues, of_programs = _queues(ranges)
    taken: list[tuple[float, float]] = []
    sent: dict[int, list[tuple[float, int]]] = defaultdict(list)
    for range_ in ranges:
        match = _NAME.match(range_.name)
        if match is None or range_.name.startswith(MARK):
            continue
        what, number = match[1], match[3]
        on_loop = range_.thread not in queues
        bucket = -1 if number is None else int(number) + (first_site if on_loop or range_.thread in of_programs else 0)
        if what == "send":
            sent[bucket].append((range_.start, 1))
        elif what == "receive":
            sent[bucket].append((range_.end, -1))
        elif what in LANE_OF:
            yield Span(LANE_OF[what], range_.start, range_.end, what, bucket)
        if on_loop and (what in LANE_OF or what == "wait"):
            taken.append((range_.start, range_.end))
    for bucket, events in sent.items():
        yield from (Span("link", start, end, "", bucket) for start, end in _under_way(events, marks[-1].start))
    yield from _computation(marks, loop, taken)


def _queues(ranges: Iterable[Range]) -> tuple[set[int], set[int]]:
    """The threads of queues, and those among them of programs."""
    messages = [r for r in ranges if r.name.startswith((PREFIX + "send/", PREFIX + "receive/"))]
    return {r.thread for r in messages}, {r.thread for r in messages if "/site" in r.name}


def _under_way(events: Iterable[tuple[float, int]], until: float) -> Iterator[tuple[float, float]]:
    """When more has left than has arrived; what was not seen to arrive is under way to the end."""
    open_, since = 0, 0.0
    for time, change in sorted(events, key=lambda e: (e[0], -e[1])):
        if open_ == 0 and change > 0:
            since = time
        if open_ == 1 and change < 0:
            yield since, time
        open_ = max(open_ + change, 0)
    if open_ and until > since:
        yield since, until


def _computation(marks: Sequence[Range], loop: int, taken: list[tuple[float, float]]) -> Iterator[Span]:
    """What the loop's thread does between the marks and is nothing of relaxc's."""
    edges = [m for m in marks if m.thread == loop]
    holes = sorted(taken)
    for mark, following in itertools.pairwise(edges):
        label = mark.name.removeprefix(MARK)
        for start, end in _without(mark.start, following.start, holes):
            yield Span("compute", start, end, FORWARD if label == BEGIN else label)


def _without(start: float, end: float, holes: Sequence[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    for first, last in holes:
        if last <= start or first >= end:
            continue
        if first > start:
            yield start, first
        start = max(start, last)
    if end > start:
        yield start, end
