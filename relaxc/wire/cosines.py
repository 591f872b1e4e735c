"""The orthonormal cosine transform (DCT-II) of a block, so that everyone has the same bits: its coefficients, and what
is transformed.

A block is a matrix whose rows are runs of `side` elements in memory. In a short last block the whole rows are a matrix
of fewer rows, and what is left is a matrix of one short row; so n elements have n coefficients, and no padding is sent.
A matrix is transformed along its rows, then along its columns; the inverse undoes columns first. Each result is a sum
in ascending order that starts from +0, in the arithmetic's type, never contracted.

Coefficient (k, j) of length n is sqrt((1 if k == 0 else 2) / n) * cos(pi * (2 j + 1) k / (2 n)), computed in f64 by the
operations below, which any processor does alike, and rounded once. runtime/relaxrt/cosines.h is the same in C++.
"""

from __future__ import annotations

import math

TERMS = 9
LARGEST_SIDE = 128


def matrices(elements: int, side: int) -> list[tuple[int, int, int]]:
    """What a block of `elements` is made of: (first element, rows, columns)."""
    rows, rest = divmod(elements, side)
    cut = [(0, rows, side), (rows * side, 1, rest)]
    return [matrix for matrix in cut if matrix[1] and matrix[2]]


def coefficients(length: int) -> list[list[float]]:
    """In f64, row k for coefficient k."""
    first, other = math.sqrt(1.0 / length), math.sqrt(2.0 / length)
    return [
        [(other if k else first) * cosine((2 * j + 1) * k % (4 * length), length) for j in range(length)]
        for k in range(length)
    ]


def cosine(turn: int, length: int) -> float:
    """cos(pi * turn / (2 * length)), for 0 <= turn < 4 * length."""
    if turn > 2 * length:
        turn = 4 * length - turn
    if turn > length:
        return -_up_to_a_quarter(2 * length - turn, length)
    return _up_to_a_quarter(turn, length)


def _up_to_a_quarter(turn: int, length: int) -> float:
    """By the series of the cosine up to an eighth of a turn, by that of the sine beyond."""
    beyond = 2 * turn > length
    angle = math.pi * float(length - turn if beyond else turn) / float(2 * length)
    square, result = angle * angle, 1.0
    for k in range(2 * TERMS, 0, -2):
        result = 1.0 - square / float(k * (k + 1) if beyond else (k - 1) * k) * result
    return angle * result if beyond else result
