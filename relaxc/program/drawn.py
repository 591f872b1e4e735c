"""The bits of wire/dither.py, for many elements or blocks at once."""

from __future__ import annotations

import numpy as np

from relaxc.program.functions import Array

GOLDEN = np.uint32(0x9E3779B9)


def drawn(index: Array, key0: Array, key1: Array) -> Array:
    """u32 bits h of each number of `index` (u64); the keys (u32) broadcast."""
    low, high = index.astype(np.uint32), (index >> np.uint64(32)).astype(np.uint32)
    return _mixed(_mixed(low ^ key0) + key1 + high * GOLDEN)


def chosen(numbers: Array, keys: tuple[int, int], block: int) -> Array:
    """Which element of each of the blocks `numbers` (u64) of a parameter is chosen. `keys` are
    parameter_keys(shared_key(...), ...)."""
    bits = drawn(numbers, *(np.asarray(key, np.uint32) for key in keys))
    return np.asarray(bits * np.uint64(block) >> np.uint64(32))


def _mixed(h: Array) -> Array:
    """Wellons' lowbias32."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
    return np.asarray(h ^ (h >> np.uint32(16)))
