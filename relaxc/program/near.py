"""How far apart two workers may be for a codec that decodes near the receiver's own value, found by trying it."""

from __future__ import annotations

from functools import cache

import numpy as np

from relaxc.program.evaluate import decode, encode
from relaxc.program.functions import Array
from relaxc.program.ir import Codec

SAMPLE, SMALLEST, LARGEST, STEPS = 512, 2.0**-24, 2.0**24, 20


@cache
def largest_distance(codec: Codec) -> float | None:
    """Of one element, in values of about 1. None where the codec decodes near nothing, finds its range by itself, or
    has none that was found."""
    if codec.near is None or codec.states:
        return None
    x = np.linspace(-1, 1, SAMPLE)
    message = encode(codec, x)
    right = decode(codec, message, SAMPLE, np.float64, x)

    def holds(distance: float) -> bool:
        return all(
            _same(decode(codec, message, SAMPLE, np.float64, x + d), right, distance) for d in (distance, -distance)
        )

    below = SMALLEST
    while holds(below) and below < LARGEST:
        below *= 2
    if below in (SMALLEST, LARGEST):
        return None
    above, below = below, below / 2
    for _ in range(STEPS):
        middle = (below + above) / 2
        below, above = (middle, above) if holds(middle) else (below, middle)
    return below


def _same(found: Array, right: Array, distance: float) -> bool:
    return bool((np.abs(found - right) < distance / 2).all())
