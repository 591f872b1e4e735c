"""Random bits for `dither`, a function of (seed, iteration, place, worker, parameter, element) and of nothing else.

`dither(x) = floor(x + u)`. u has 24 bits: u = (h >> 8) / 2^24 with h = mix(mix(low ^ key0) + key1 + high * GOLDEN),
low and high the halves of the element's 64-bit index in its parameter and mix Wellons' lowbias32. The two keys of a
message come from splitmix64 over its coordinates, the parameter's last.

`chosen` is true for one element of each block, the same for whoever draws it, at any place and by any worker: number
h * block >> 32 of the block, with h as above of the block's number in its parameter, and keys that come from the seed,
the iteration and the parameter alone. It is drawn over the full length of a block, so that all elements are equally
likely; in a short last block there may be none. program/drawn.py has both for numpy, runtime/relaxrt/dither.h in C++.
"""

from __future__ import annotations

MASK32 = 0xFFFFFFFF
MASK64 = 0xFFFFFFFFFFFFFFFF
SHARED = MASK64
"""No place and worker of a message: tells the shared key from theirs."""
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


def shared_key(seed: int, iteration: int) -> int:
    """Of what is drawn alike by all workers and in every encoding of an iteration."""
    return splitmix(splitmix(splitmix(seed & MASK64) ^ iteration) ^ SHARED)


def parameter_keys(message: int, parameter: int) -> tuple[int, int]:
    """key0 and key1 of one parameter in a message."""
    key = splitmix(message ^ parameter)
    return key & MASK32, key >> 32
