"""What each function of the language means on arrays of f32 or f64. Where the language leaves a choice that bits
depend on, this is the rule:

- x / 0 is 0 in a codec, what IEEE says in an algorithm;
- min(a, b) and max(a, b) are NaN where either is, b where they are equal; clamp(x, a, b) is min(max(x, a), b);
- round is to the nearest whole number, a half to the even one;
- mod(x, m) is x - m * floor(x / m): it has the sign of m; wrap(x, m) is x - m * round(x / m), what of the numbers that
  differ from x by a multiple of m is next to 0; both are exact where m is a power of two;
- a power by a whole constant, up to 64 in size, is repeated multiplication from the left (its reciprocal for a negative
  one); any other power, exp, log and log2 are computed in f64 and rounded once;
- logb(x) is the exponent of x, floor(log2(abs(x))) without its rounding, as logB of IEEE 754: -inf of 0, inf of inf;
- a comparison is 1 or 0, and a condition is true where it is not 0;
- sums go in the order of wire/sums.py; min and max over a block with a NaN are NaN, a zero among their results is +0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxc.wire.numbers import LONGEST_PRODUCT
from relaxc.wire.sums import LANES

Array = NDArray[Any]
Function = Callable[..., Any]


def power(base: Array, exponent: float | Array, divide: Function) -> Array:
    """`exponent` is a float where it is a constant."""
    if isinstance(exponent, float | int):
        if float(exponent).is_integer() and abs(exponent) <= LONGEST_PRODUCT:
            return _product(base, int(exponent), divide)
        exponent = np.asarray(exponent, base.dtype)
    return np.asarray(_precise(np.power)(base, exponent))


def _product(base: Array, times: int, divide: Function) -> Array:
    product = np.ones_like(base)
    for _ in range(abs(times)):
        product = product * base
    return product if times >= 0 else np.asarray(divide(np.ones_like(base), product))


def _precise(function: Function) -> Function:
    """Computed in f64, rounded once to the type of its arguments."""

    def computed(*arguments: Array) -> Array:
        kind = np.result_type(*arguments)
        return np.asarray(function(*(np.asarray(a, np.float64) for a in arguments))).astype(kind)

    return computed


def _exponent(x: Array) -> Array:
    size = np.abs(x)
    exponents = np.frexp(size)[1].astype(size.dtype) - 1
    return np.asarray(np.where(size == 0, -np.inf, np.where(np.isfinite(size), exponents, size)), size.dtype)


def _least(a: Array, b: Array) -> Array:
    return np.asarray(np.where((a < b) | np.isnan(a), a, b))


def _greatest(a: Array, b: Array) -> Array:
    return np.asarray(np.where((a > b) | np.isnan(a), a, b))


def _or_zero(a: Array, b: Array) -> Array:
    return np.asarray(np.where(b == 0, 0, a / b))


def _functions(divide: Function) -> dict[str, Function]:
    return {
        "+": np.add,
        "-": np.subtract,
        "*": np.multiply,
        "/": divide,
        "neg": np.negative,
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
        "and": np.logical_and,
        "or": np.logical_or,
        "not": np.logical_not,
        "where": lambda c, a, b: np.where(c != 0, a, b),
        "sqrt": np.sqrt,
        "abs": np.abs,
        "sign": np.sign,
        "min": _least,
        "max": _greatest,
        "clamp": lambda x, low, high: _least(_greatest(x, low), high),
        "round": np.rint,
        "floor": np.floor,
        "exp": _precise(np.exp),
        "log": _precise(np.log),
        "log2": _precise(np.log2),
        "logb": _exponent,
        "mod": lambda x, m: x - m * np.floor(divide(x, m)),
        "wrap": lambda x, m: x - m * np.rint(divide(x, m)),
    }


ALGORITHM = _functions(np.divide)
CODEC = _functions(_or_zero)


def total(rows: Array) -> Array:
    """The sum of each row, shape (rows, 1)."""
    lanes = np.zeros((rows.shape[0], LANES), rows.dtype)
    for start in range(0, rows.shape[1], LANES):
        part = rows[:, start : start + LANES]
        lanes[:, : part.shape[1]] += part
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes


def norm(rows: Array) -> Array:
    return np.asarray(np.sqrt(total(rows * rows)))


REDUCE: dict[str, Callable[[Array], Array]] = {
    "min": lambda rows: rows.min(axis=1, keepdims=True) + rows.dtype.type(0),
    "max": lambda rows: rows.max(axis=1, keepdims=True) + rows.dtype.type(0),
    "sum": total,
    "mean": lambda rows: total(rows) / rows.dtype.type(rows.shape[1]),
    "norm": norm,
}
