"""A coded bucket, cut into pieces that follow one another through encode, wire and decode.

A piece takes from each owner's share at most about `piece_bytes` of code: larger messages suffer incast, smaller ones
cost calls. Cuts fall on block borders, so they never change a result.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from relaxc.wire.layout import Layout
from relaxc.wire.ownership import owned
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
    shares = [
        _cut_share(_share(parameters, layout, workers, w), parameters, layout, piece_bytes) for w in range(workers)
    ]
    count = max((len(share) for share in shares), default=0)
    return tuple(tuple(share[i] if i < len(share) else () for share in shares) for i in range(count))


def _share(parameters: Sequence[Parameter], layout: Layout, workers: int, owner: int) -> list[Range]:
    ranges = []
    for parameter in parameters:
        start, end = owned(parameter.number, parameter.elements, layout.block, workers)[owner]
        if end > start:
            ranges.append(Range(parameter.number, start, end - start))
    return ranges


def _cut_share(
    ranges: Sequence[Range], parameters: Sequence[Parameter], layout: Layout, piece_bytes: int
) -> list[Chunk]:
    """Chunks of nearly equal size, as many as keep each at about `piece_bytes`."""
    real = {p.number: p.real_bytes for p in parameters}
    total = sum(layout.bytes_of(r.elements, real[r.parameter]) for r in ranges)
    count = -(-total // piece_bytes)
    chunks: list[list[Range]] = []
    room = 0.0
    for range_ in ranges:
        per_block = layout.block_bytes(layout.block, real[range_.parameter])
        first, end = range_.first, range_.first + range_.elements
        while first < end:
            if room <= 0:
                chunks.append([])
                room += total / count
            take = min(end - first, math.ceil(room / per_block) * layout.block)
            chunks[-1].append(Range(range_.parameter, first, take))
            room -= layout.bytes_of(take, real[range_.parameter])
            first += take
    return [tuple(chunk) for chunk in chunks]


def chunk_bytes(chunk: Chunk, layout: Layout, real_bytes: int) -> int:
    return sum(layout.bytes_of(r.elements, real_bytes) for r in chunk)
