"""Random bits for `dither`, a function of (seed, iteration, place, worker, parameter, element) and of nothing else.

`dither(x) = floor(x + u)`. u has 24 bits: u = (h >> 8) / 2^24 with h = mix(mix(low ^ key0) + key1 + high * GOLDEN),
low and high the halves of the element's 64-bit index in its parameter and mix Wellons' lowbias32. The two keys of a
message come from splitmix64 over its coordinates, the parameter's last. runtime/relaxrt/dither.h is the same in C++.
"""

from __future__ import annotations

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
GOLDEN = 0x9E3779B9
EVERYONE = MASK32
"""Stands for the worker where a re-encoding after a sum is keyed without one."""


def splitmix(state: int) -> int:
    state = (state + 0x9E3779B97F4A7C15) & MASK64
    state = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK64
    state = ((state ^ state >> 27) * 0x94D049BB133111EB) & MASK64
    return state ^ state >> 31


def message_key(seed: int, iteration: int, place: int, worker: int) -> int:
    key = splitmix(seed & MASK64)
    key = splitmix(key ^ iteration)
    return splitmix(key ^ (place << 32 | worker))


def parameter_keys(message: int, parameter: int) -> tuple[int, int]:
    """key0 and key1 of one parameter in a message."""
    key = splitmix(message ^ parameter)
    return key & MASK32, key >> 32
