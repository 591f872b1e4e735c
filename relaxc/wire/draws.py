"""What all workers draw alike, by wire/dither.splitmix: functions of the seed and of coordinates, of nothing else."""

from __future__ import annotations

from math import floor, isfinite

from relaxc.wire.dither import MASK64, splitmix

GEOMETRIC = 3
"""Tells these draws from others with the same seed; topology/ has 1 and 2, wire/low_rank.py 7."""


def bits(seed: int, *coordinates: int) -> int:
    """64 random bits."""
    key = splitmix(seed & MASK64)
    for coordinate in coordinates:
        key = splitmix(key ^ coordinate & MASK64)
    return key


def permutation(count: int, seed: int, *coordinates: int) -> list[int]:
    """0 to count - 1 in an order that is drawn; all orders are equally likely, but for 2^-56 of it."""
    key = bits(seed, *coordinates)
    order = list(range(count))
    for last in range(count - 1, 0, -1):
        chosen = splitmix(key ^ last) * (last + 1) >> 64
        order[last], order[chosen] = order[chosen], order[last]
    return order


def geometric(seed: int, block: int, count: int, mean: float) -> bool:
    """Whether `every geometric(mean)` runs block `block` when control reaches it for the `count`-th time: true with
    probability 1 / mean, always where mean is 1 or less, never where it is nan or inf."""
    uniform = (bits(seed, GEOMETRIC, block, count) >> 11) * 2.0**-53
    return mean <= 1 or uniform * mean < 1


def head_start(before: int, total: int, period: float) -> int:
    """Where the count of `every staggered(period)` starts for a parameter with `before` of the model's `total` elements
    in those of lower numbers: in [0, period), ascending, so that about as many elements have their turn in each
    iteration."""
    if not isfinite(period) or period < 1 or before >= total:
        return 0
    return floor(before * period / total)
