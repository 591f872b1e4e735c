"""A map over networks as text, and as an SVG that stands alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from relaxc.report.times import shown
from relaxc.tune.ranking import Candidate, Map, stretches

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
COLOURS = ("#cfd6e4", "#3572d4", "#e08a2c", "#2f9e6e", "#b0489b", "#c9a227", "#5bb4c9", "#d0553f", "#7d68c8", "#8a9a3b")
CELL_WIDTH, CELL_HEIGHT, LEFT, TOP = 56, 40, 90, 40


def shown_bits(bandwidth: float) -> str:
    for size, unit in ((1e9, "Gbit/s"), (1e6, "Mbit/s")):
        if bandwidth >= size * 0.9995:
            return f"{bandwidth / size:.3g} {unit}"
    return f"{bandwidth / 1e3:.3g} kbit/s"


def letters(found: Map) -> dict[int, str]:
    """Of those that are the answer somewhere, those that relax least first."""
    orders = sorted({order for row in found.answers for order in row})
    return {order: LETTERS[n % len(LETTERS)] for n, order in enumerate(orders)}


def named(candidates: Sequence[Candidate], order: int) -> str:
    candidate = next(c for c in candidates if c.order == order)
    return f"no compression ({candidate.variant.name})" if candidate.variant.plain else candidate.variant.name


def text_map(found: Map, candidates: Sequence[Candidate]) -> str:
    """A row for each latency, a letter for each bandwidth, and what the letters stand for."""
    known = letters(found)
    lines = [
        f"  {shown(latency):>7}  " + "  ".join(known[order] for order in row)
        for latency, row in zip(found.latencies, found.answers, strict=True)
    ]
    ends = f"{shown_bits(found.bandwidths[0])} to {shown_bits(found.bandwidths[-1])}"
    legend = [f"  {letter}  {named(candidates, order)}" for order, letter in known.items()]
    return "\n".join([f"  latency, and bandwidths from {ends}", *lines, "", *legend]) + "\n"


def crossovers(found: Map, candidates: Sequence[Candidate], row: int) -> Iterator[str]:
    """Sentences about one latency: what pays from which bandwidth to which."""
    parts = list(stretches(found, row))
    for n, part in enumerate(parts):
        where = "everywhere" if len(parts) == 1 else (
            f"below {shown_bits(part.high)}" if n == 0 else
            f"above {shown_bits(part.low)}" if n + 1 == len(parts) else
            f"from {shown_bits(part.low)} to {shown_bits(part.high)}"
        )  # fmt: skip
        yield f"{where}: {named(candidates, part.order)}"


def svg_map(found: Map, candidates: Sequence[Candidate], title: str) -> str:
    """Bandwidth across, latency down, each cell in the colour of what pays there, with how much faster it is."""
    known = letters(found)
    width = LEFT + CELL_WIDTH * len(found.bandwidths) + 20
    bottom = TOP + CELL_HEIGHT * len(found.latencies)
    height = bottom + 50 + 22 * len(known)
    body = "".join([*_cells(found, known), *_axes(found, bottom), *_legend(known, candidates, bottom + 60)])
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
        f'<text x="{LEFT}" y="22" font-size="15">{escape(title)}</text>{body}</svg>\n'
    )


def _colour(known: dict[int, str], order: int) -> str:
    return COLOURS[list(known).index(order) % len(COLOURS)]


def _cells(found: Map, known: dict[int, str]) -> Iterator[str]:
    for r, (row, gains) in enumerate(zip(found.answers, found.gains, strict=True)):
        for c, (order, gain) in enumerate(zip(row, gains, strict=True)):
            x, y = LEFT + c * CELL_WIDTH, TOP + r * CELL_HEIGHT
            yield (
                f'<rect x="{x}" y="{y}" width="{CELL_WIDTH - 1}" height="{CELL_HEIGHT - 1}" '
                f'fill="{_colour(known, order)}"/>'
                f'<text x="{x + CELL_WIDTH / 2}" y="{y + 24}" text-anchor="middle">{known[order]} {gain:.3g}x</text>'
            )


def _axes(found: Map, bottom: int) -> Iterator[str]:
    for r, latency in enumerate(found.latencies):
        yield f'<text x="{LEFT - 8}" y="{TOP + r * CELL_HEIGHT + 24}" text-anchor="end">{shown(latency)}</text>'
    for c, bandwidth in enumerate(found.bandwidths):
        if c % 3 == 0:
            x = LEFT + c * CELL_WIDTH + CELL_WIDTH / 2
            yield f'<text x="{x}" y="{bottom + 18}" text-anchor="middle">{shown_bits(bandwidth)}</text>'


def _legend(known: dict[int, str], candidates: Sequence[Candidate], top: int) -> Iterator[str]:
    for n, (order, letter) in enumerate(known.items()):
        y = top + 22 * n
        yield f'<rect x="{LEFT}" y="{y - 11}" width="14" height="14" fill="{_colour(known, order)}"/>'
        yield f'<text x="{LEFT + 22}" y="{y}">{letter}  {escape(named(candidates, order))}</text>'
