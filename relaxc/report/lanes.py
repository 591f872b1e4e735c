"""Timelines as one SVG: a row for each lane, a box for each span, all over one axis."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from html import escape

from relaxc.report.times import shown
from relaxc.schedule.timeline import LANES, Span, Timeline, merged

LEFT, WIDTH, ROW, GAP, HEAD = 96, 1000, 26, 6, 22
"""Of the drawing, in its own units."""
FINEST = 1e-3
"""Gaps below this share of the axis are not drawn."""
TICKS = 8


def drawing(timelines: Mapping[str, Timeline], buckets: Collection[int] = ()) -> str:
    """One block of lanes under the other, each with its name. Boxes of `buckets` link to them."""
    length = max(timeline.length for timeline in timelines.values())
    blocks, top = [], 0.0
    for name, timeline in timelines.items():
        drawn = "".join(_block(name, timeline, length, top, buckets))
        blocks.append(f'<g class="timeline" data-name="{escape(name)}">{drawn}</g>')
        top += HEAD + len(LANES) * (ROW + GAP) + GAP
    axis = "".join(_axis(length, top))
    return (
        f'<svg viewBox="0 0 {LEFT + WIDTH + 16} {top + 24:g}" role="img" aria-label="lanes of an iteration">'
        f"{axis}{''.join(blocks)}</svg>"
    )


def _block(name: str, timeline: Timeline, length: float, top: float, buckets: Collection[int]) -> Iterator[str]:
    yield f'<text class="name" x="0" y="{top + 14:g}">{escape(name)}</text>'
    for number, lane in enumerate(LANES):
        y = top + HEAD + number * (ROW + GAP)
        yield f'<text class="lane" x="0" y="{y + 17:g}">{lane}</text>'
        yield f'<rect class="row" x="{LEFT}" y="{y:g}" width="{WIDTH}" height="{ROW}"/>'
        spans = (s for s in timeline.spans if s.lane == lane)
        yield from (_box(span, length, y, buckets) for span in merged(spans, length * FINEST))
    end = LEFT + WIDTH * timeline.iteration / length
    bottom = top + HEAD + len(LANES) * (ROW + GAP)
    yield f'<line class="end" x1="{end:.2f}" x2="{end:.2f}" y1="{top + HEAD:g}" y2="{bottom:g}"/>'


def _box(span: Span, length: float, y: float, buckets: Collection[int]) -> str:
    x, width = LEFT + WIDTH * span.start / length, max(WIDTH * (span.end - span.start) / length, 0.5)
    what = span.label if span.lane != "link" else "on the link"
    where = f", bucket {span.bucket}" if span.bucket >= 0 else ""
    title = f"{what}{where}: {shown(span.end - span.start)} from {shown(span.start)}"
    box = (
        f'<rect class="box {span.lane} {_word(span.label)}" data-bucket="{span.bucket}" x="{x:.2f}" y="{y:g}" '
        f'width="{width:.2f}" height="{ROW}"><title>{escape(title)}</title></rect>'
    )
    return f'<a href="#bucket-{span.bucket}">{box}</a>' if span.bucket in buckets else box


def _word(label: str) -> str:
    return label if label.isalpha() else ""


def _axis(length: float, bottom: float) -> Iterator[str]:
    step = _round_step(length / TICKS)
    for number in range(int(length / step) + 1 if step > 0 else 0):
        x = LEFT + WIDTH * number * step / length
        yield f'<line class="tick" x1="{x:.2f}" x2="{x:.2f}" y1="{HEAD}" y2="{bottom:g}"/>'
        yield f'<text class="tick" x="{x:.2f}" y="{bottom + 16:g}" text-anchor="middle">{shown(number * step)}</text>'


def _round_step(least: float) -> float:
    """1, 2 or 5 times a power of ten, at least so much."""
    if least <= 0:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next((power * times for times in (1, 2, 5) if power * times >= least), power * 10)
