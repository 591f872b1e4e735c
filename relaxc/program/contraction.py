"""How much of a value its code keeps: an estimate, for methods whose step towards the neighbours must fit it.

A codec contracts by d where |x - decode(encode(x))|^2 <= (1 - d) |x|^2. What holds for every x is far from what happens
(k / n for the k largest of n), so d is measured: once, on a sample that stands for values as gradients and changes of
weights have them. The sample is the same everywhere, as are the digits that are kept, so all workers agree. numpy is
imported where it is used.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

from relaxc.program.ir import Codec
from relaxc.wire.dither import message_key, parameter_keys
from relaxc.wire.draws import permutation

if TYPE_CHECKING:
    from numpy.typing import NDArray

ELEMENTS = 8192
SEED = 0
DIGITS = 3
SIZES = (2.0**-10, 1.0, 2.0**10)
"""Of the sample: a codec that is scale-free keeps the same of each."""


@lru_cache(maxsize=256)
def contraction(codec: Codec) -> float | None:
    """The d of a codec for Gaussian values of the least favourable size, to three digits; 0 where it loses more than
    there is, as one with levels of a size of their own does. None for a codec that decodes near the receiver's own
    value: what it loses does not depend on the value."""
    if codec.near is not None:
        return None
    kept = min(_kept(codec, _sample() * size) for size in SIZES)
    return float(f"{kept:.{DIGITS}g}") if isfinite(kept) and kept > 0 else 0.0


@lru_cache(maxsize=256)
def keeps_nothing(codec: Codec) -> bool:
    """Whether what it loses is as much as there is, or more, of values of some size or of one sign: those of both tell
    nothing of a codec that decodes all of one sign as 0."""
    if codec.near is not None:
        return False
    sample = _sample()
    return any(not _kept(codec, values * size) > 0 for values in (sample, abs(sample), -abs(sample)) for size in SIZES)


def _kept(codec: Codec, value: NDArray[Any]) -> float:
    from relaxc.program.evaluate import decode, encode

    keys = parameter_keys(message_key(SEED, 0, 0, 0), 0)
    lost = value - decode(codec, encode(codec, value, keys), value.size, value.dtype)
    return 1 - float((lost.astype(float) ** 2).sum() / (value.astype(float) ** 2).sum())


def _sample() -> NDArray[Any]:
    """The quantiles of the normal distribution in an order that is drawn."""
    import numpy as np

    quantiles = [NormalDist().inv_cdf((place + 0.5) / ELEMENTS) for place in permutation(ELEMENTS, SEED)]
    return np.array(quantiles, np.float32)
