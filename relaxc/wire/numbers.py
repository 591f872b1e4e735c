"""Expressions over numbers, which the host evaluates in f64: the interpreter and attach both call this.

An expression is a float, a name, or [function, argument, ...] nested, in tuples or in the lists that JSON has instead.
Functions: + - * / ^ neg, < <= > >= == != and or not (1.0 is true, 0.0 false; all but 0 counts as true), min max clamp
where sqrt abs sign round floor exp log log2 logb mod wrap. No value raises: arithmetic is IEEE's, so

- x / 0 is inf or nan, what is too large is inf, a log or root or broken power of a negative is nan, log(0) is -inf;
- round is to the nearest whole number, a half to the even one;
- min and max are nan where either is; clamp(x, low, high) is min(max(x, low), high); sign(0) is 0;
- logb(x) is the exponent of x, floor(log2(abs(x))) without its rounding (logB of IEEE 754): -inf of 0, inf of inf;
- mod(x, m) has the sign of m, and is nan for m = 0;
- wrap(x, m) = x - m * round(x / m): of the numbers that differ from x by a multiple of m, the one nearest to 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

LONGEST_PRODUCT = 64
"""On tensors a power by a whole constant up to this one is a product; beyond it, and by a fraction, it is pow, as it
always is here."""


def evaluate(expression: Any, names: Mapping[str, float]) -> float:
    """The value of an expression. Raises KeyError for a name that isn't given, ValueError for what is no expression."""
    if isinstance(expression, str):
        return float(names[expression])
    if isinstance(expression, int | float):
        return float(expression)
    if not isinstance(expression, list | tuple) or not expression or expression[0] not in FUNCTIONS:
        raise ValueError(f"not an expression over numbers: {expression!r}")
    function, *arguments = expression
    return FUNCTIONS[function](*(evaluate(argument, names) for argument in arguments))


def names(expression: Any) -> set[str]:
    """The names that an expression reads."""
    if isinstance(expression, str):
        return {expression}
    if isinstance(expression, int | float):
        return set()
    return set().union(*map(names, expression[1:]))


def _quotient(x: float, y: float) -> float:
    if y != 0:
        return x / y
    return math.nan if x == 0 or math.isnan(x) else math.copysign(math.inf, x) * math.copysign(1.0, y)


def _power(x: float, y: float) -> float:
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:  # a negative power of 0, or a broken one of a negative
        if x != 0:
            return math.nan
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


def _exponential(x: float) -> float:
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


def _logarithm(log: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: log(x) if x > 0 else -math.inf if x == 0 else math.nan


def _exponent(x: float) -> float:
    if x == 0 or not math.isfinite(x):
        return -math.inf if x == 0 else abs(x)
    return float(math.frexp(x)[1] - 1)


def _whole(round: Callable[[float], int]) -> Callable[[float], float]:
    """Rounding keeps inf, nan and the sign of zero."""

    def rounded(x: float) -> float:
        if not math.isfinite(x):
            return x
        whole = float(round(x))
        return whole or math.copysign(0.0, x)

    return rounded


def _least(a: float, b: float) -> float:
    return a if math.isnan(a) or a < b else b


def _greatest(a: float, b: float) -> float:
    return a if math.isnan(a) or a > b else b


def _sign(x: float) -> float:
    return x if math.isnan(x) else float((x > 0) - (x < 0))


def _root(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def _modulo(x: float, m: float) -> float:
    return x % m if m else math.nan


_round = _whole(round)


FUNCTIONS: dict[str, Callable[..., float]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
    "/": _quotient,
    "^": _power,
    "neg": lambda x: -x,
    "<": lambda x, y: float(x < y),
    "<=": lambda x, y: float(x <= y),
    ">": lambda x, y: float(x > y),
    ">=": lambda x, y: float(x >= y),
    "==": lambda x, y: float(x == y),
    "!=": lambda x, y: float(x != y),
    "and": lambda x, y: float(bool(x) and bool(y)),
    "or": lambda x, y: float(bool(x) or bool(y)),
    "not": lambda x: float(not x),
    "where": lambda condition, x, y: x if condition else y,
    "sqrt": _root,
    "abs": abs,
    "sign": _sign,
    "min": _least,
    "max": _greatest,
    "clamp": lambda x, low, high: _least(_greatest(x, low), high),
    "round": _round,
    "floor": _whole(math.floor),
    "exp": _exponential,
    "log": _logarithm(math.log),
    "log2": _logarithm(math.log2),
    "logb": _exponent,
    "mod": _modulo,
    "wrap": lambda x, m: x - m * _round(_quotient(x, m)),
}
