"""Timelines as a trace that Chrome (about:tracing) and Perfetto open."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from relaxc.schedule.timeline import LANES, Timeline

MICRO = 1e6


def trace_events(timelines: Mapping[str, Timeline]) -> str:
    """A process for each timeline, by its name, and in it a thread for each lane."""
    events = [event for pid, (name, one) in enumerate(timelines.items(), 1) for event in _process(pid, name, one)]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def _process(pid: int, name: str, timeline: Timeline) -> Iterator[dict[str, Any]]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    for tid, lane in enumerate(LANES, 1):
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}
    for span in sorted(timeline.spans, key=lambda s: s.start):
        yield {
            "ph": "X", "name": span.label or span.lane, "cat": span.lane, "pid": pid, "tid": LANES.index(span.lane) + 1,
            "ts": span.start * MICRO, "dur": (span.end - span.start) * MICRO,
            "args": {} if span.bucket < 0 else {"bucket": span.bucket},
        }  # fmt: skip
