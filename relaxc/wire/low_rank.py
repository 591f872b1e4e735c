"""A parameter as a matrix, and the factors of low rank that are sent of it.

The matrix has the parameter's first dimension as rows and all others as columns; a vector is n x 1, a scalar 1 x 1. Of
a matrix M, P = M Q and Q = M' P are sent, of `rank` columns each: as many as asked for, and no more than it has rows or
columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from relaxc.wire.draws import bits

if TYPE_CHECKING:
    from numpy.typing import NDArray

NORMAL = 7
"""Tells these draws from others with the same seed."""


@dataclass(frozen=True, slots=True)
class Factors:
    """P has rows x rank elements, Q columns x rank; all are 0 for a parameter without elements."""

    rows: int
    columns: int
    rank: int

    @property
    def p(self) -> int:
        return self.rows * self.rank

    @property
    def q(self) -> int:
        return self.columns * self.rank


def factors_of(shape: Sequence[int], rank: int) -> Factors:
    rows = shape[0] if shape else 1
    columns = 1
    for side in shape[1:]:
        columns *= side
    if not rows * columns:
        return Factors(0, 0, 0)
    return Factors(rows, columns, min(rank, rows, columns))


def first_q(seed: int, place: int, parameter: int, elements: int) -> NDArray[Any]:
    """What Q begins as, by rows, in f64: normal numbers that all workers draw alike. Machines may differ in the last
    bit of one, which makes no difference behind the first exchange: from there on all hold what was summed."""
    import numpy as np

    from relaxc.wire.dither import splitmix

    key = bits(seed, NORMAL, place, parameter)
    drawn = np.array([splitmix(key ^ k) >> 11 for k in range(2 * elements)], np.float64) * 2.0**-53
    radius = np.sqrt(-2 * np.log(1 - drawn[::2]))
    normal: NDArray[Any] = radius * np.cos(2 * np.pi * drawn[1::2])
    return normal
