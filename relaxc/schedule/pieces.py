"""A coded bucket, cut into pieces that follow one another through encode, wire and decode.

A piece takes from each owner's share at most about `piece_bytes` of code: larger messages suffer incast, smaller ones
cost calls. Cuts fall on block borders, so they never change a result; where a run is one block (wire/layout.py) it is
never cut, however large.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from relaxc.wire.layout import Layout
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter


@dataclass(frozen=True, slots=True)
class Range:
    """Elements [first, first + elements) of a parameter; starts at a block border."""

    parameter: int
    first: int
    elements: int


Chunk = tuple[Range, ...]
"""What one worker owns of a piece."""


def cut_pieces(
    parameters: Sequence[Parameter], layout: Layout, workers: int, piece_bytes: int
) -> tuple[tuple[Chunk, ...], ...]:
    """Pieces of a bucket with these parameters, each a chunk per worker."""
    cut = [_cut_share(ranges, parameters, layout, piece_bytes) for ranges in _shares(parameters, layout, workers)]
    count = max((len(share) for share in cut), default=0)
    return tuple(tuple(share[i] if i < len(share) else () for share in cut) for i in range(count))


def cut_whole(parameters: Sequence[Parameter], layout: Layout, piece_bytes: int) -> tuple[tuple[Chunk, ...], ...]:
    """Pieces of an exchange without owners, each of one chunk."""
    ranges = [Range(p.number, 0, p.elements) for p in parameters if p.elements]
    return tuple((chunk,) for chunk in _cut_share(ranges, parameters, layout, piece_bytes))


def cut_apart(
    parameters: Sequence[Parameter], layout: Layout, piece_bytes: int, large: int
) -> tuple[tuple[Chunk, ...], ...]:
    """The same, where parameters of at least `large` bytes have pieces to themselves: then a message is one run of
    memory."""
    alone = [p for p in parameters if layout.bytes_of(p.elements, p.real_bytes) >= large]
    groups = [*([p] for p in alone), [p for p in parameters if p not in alone]]
    return tuple(piece for group in groups for piece in cut_whole(group, layout, piece_bytes))


def _shares(parameters: Sequence[Parameter], layout: Layout, workers: int) -> list[list[Range]]:
    """For each worker what it owns of the parameters."""
    ranges: list[list[Range]] = [[] for _ in range(workers)]
    for parameter in parameters:
        for mine, (start, end) in zip(
            ranges, shares(parameter.number, parameter.elements, layout, workers), strict=True
        ):
            if end > start:
                mine.append(Range(parameter.number, start, end - start))
    return ranges


def _cut_share(
    ranges: Sequence[Range], parameters: Sequence[Parameter], layout: Layout, piece_bytes: int
) -> list[Chunk]:
    """Chunks of nearly equal size, as many as keep each at about `piece_bytes`."""
    real = {p.number: p.real_bytes for p in parameters}
    bytes_of = cache(layout.bytes_of)  # models repeat their shapes
    total = sum(bytes_of(r.elements, real[r.parameter]) for r in ranges)
    count = -(-total // piece_bytes)
    chunks: list[list[Range]] = []
    room = 0.0
    for range_ in ranges:
        first, end = range_.first, range_.first + range_.elements
        while first < end:
            if room <= 0:
                chunks.append([])
                # what one piece has too much of the next has less; a run that can't be cut would take from many
                room = total / count + (room if layout.unit == "block" else 0)
            take = _taken(end - first, room, layout, real[range_.parameter])
            chunks[-1].append(Range(range_.parameter, first, take))
            room -= bytes_of(take, real[range_.parameter])
            first += take
    return [tuple(chunk) for chunk in chunks]


def _taken(left: int, room: float, layout: Layout, real_bytes: int) -> int:
    """How many of the `left` elements of a run go where there is `room` bytes."""
    if layout.unit != "block":
        return left
    return min(left, math.ceil(room / layout.block_bytes(layout.block, real_bytes)) * layout.block)


def chunk_bytes(chunk: Chunk, layout: Layout, real_bytes: int) -> int:
    alike = Counter(r.elements for r in chunk)
    return sum(count * layout.bytes_of(elements, real_bytes) for elements, count in alike.items())
