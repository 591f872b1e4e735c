"""What `top` and `dct` mean, on blocks that are the rows of a matrix."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from relaxc.program.functions import Array
from relaxc.wire.cosines import coefficients, matrices


def largest(rows: Array, count: int) -> Array:
    """The places of the `count` elements of largest magnitude in each row, ascending. Of equal ones the first; a NaN is
    larger than all, and equal to another."""
    size = np.where(np.isnan(rows), np.inf, np.abs(rows))
    order = np.lexsort((-size, ~np.isnan(rows)), axis=1)  # a stable sort: by NaN, then by magnitude
    return np.sort(order[:, :count], axis=1)


def spread(places: Array, values: Array, elements: int) -> Array:
    """`values` at their places, +0 elsewhere."""
    out = np.zeros((places.shape[0], elements), values.dtype)
    np.put_along_axis(out, places, values, axis=1)
    return out


def transform(function: str, rows: Array, side: int) -> Array:
    """`dct` or `idct` of each row (wire/cosines.py)."""
    out = np.empty_like(rows)
    for first, height, width in matrices(rows.shape[1], side):
        part = slice(first, first + height * width)
        matrix = rows[:, part].reshape(-1, height, width)
        out[:, part] = _both_sides(function, matrix).reshape(rows.shape[0], -1)
    return out


def _both_sides(function: str, matrix: Array) -> Array:
    along, across = (_matrix(n, matrix.dtype.str) for n in (matrix.shape[2], matrix.shape[1]))
    if function == "dct":
        rows = _product(matrix, along.T)
        return _product(rows.swapaxes(1, 2), across.T).swapaxes(1, 2)
    columns = _product(matrix.swapaxes(1, 2), across).swapaxes(1, 2)
    return _product(columns, along)


def _product(left: Array, right: Array) -> Array:
    """left @ right, each element a sum in ascending order from +0."""
    total = np.zeros((*left.shape[:2], right.shape[1]), left.dtype)
    for j in range(right.shape[0]):
        total = total + left[:, :, j, None] * right[j]
    return total


@cache
def _matrix(length: int, dtype: Any) -> Array:
    return np.array(coefficients(length), np.float64).astype(dtype)
