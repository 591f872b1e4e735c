"""Who sums which block.

A function of the parameter, the block and the number of workers alone, so that buckets and pieces never change a
result.
"""

from __future__ import annotations

from relaxc.wire.layout import Layout

CHUNK_BORDER = 512
"""Shares of a codec `per chunk` begin at multiples of it."""


def shares(parameter: int, elements: int, layout: Layout, workers: int) -> list[tuple[int, int]]:
    """What each worker owns of parameter number `parameter` in an exchange with this layout: a half-open range of
    elements. A codec `per tensor` gives the whole parameter to one worker."""
    block = {"block": layout.block, "tensor": max(elements, 1), "chunk": CHUNK_BORDER}[layout.unit]
    return owned(parameter, elements, block, workers)


def owned(parameter: int, elements: int, block: int, workers: int) -> list[tuple[int, int]]:
    """For each worker the half-open range of elements that it owns in parameter number `parameter`.

    The blocks are dealt in `workers` runs that differ by at most one block; the first run goes to worker
    `parameter % workers`, so that what is left over in many small parameters spreads over all workers.
    """
    blocks = -(-elements // block)
    ranges = [(0, 0)] * workers
    for run in range(workers):
        start, end = (blocks * k // workers * block for k in (run, run + 1))
        ranges[(parameter + run) % workers] = (min(start, elements), min(end, elements))
    return ranges
