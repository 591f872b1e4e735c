"""Who sums which block (SEMANTICS decision 27).

A function of the parameter, the block and the number of workers alone, so that buckets and pieces never change a
result.
"""

from __future__ import annotations


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
