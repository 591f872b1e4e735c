"""Expressions over numbers, which the host evaluates: as plain data for the manifest (wire/numbers.py evaluates it)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from relaxc.program.ir import Apply, Constant, Expression, Optimizer, Read
from relaxc.wire.numbers import evaluate

Number = float | str | tuple[object, ...]


def plain(e: Expression, resolve: Callable[[str], Expression | None] = lambda name: None) -> Number:
    """`resolve` gives what a name stands for, or None for one that the host knows. Settings are "optimizer.NAME"."""
    match e:
        case Constant(value=value):
            return _float(value)
        case Read(name=name):
            known = resolve(name)
            return name if known is None else plain(known, resolve)
        case Optimizer(name=name, tensor=False):
            return f"optimizer.{name}"
        case Apply(function=function, arguments=arguments):
            return _folded((function, *(plain(a, resolve) for a in arguments)))
    raise TypeError(f"{e} is no number")


def _folded(number: Number) -> Number:
    """A literal, where the arguments are."""
    if isinstance(number, tuple) and all(isinstance(a, float) for a in number[1:]):
        return _float(evaluate(number, {}))
    return number


def _float(value: float) -> Number:
    """JSON has neither infinity nor NaN: they are quotients by 0."""
    if math.isfinite(value):
        return float(value)
    return ("/", 0.0 if math.isnan(value) else math.copysign(1.0, value), 0.0)


def literal(number: Number) -> float | None:
    """The value of what needs no names."""
    if isinstance(number, float):
        return number
    if isinstance(number, tuple) and number[0] == "/" and number[2] == 0.0 and isinstance(number[1], float):
        return evaluate(number, {})
    return None


@dataclass
class Given:
    """The numbers that a kernel is given, each once."""

    found: list[Number] = field(default_factory=list)

    def place(self, number: Number) -> int:
        if number not in self.found:
            self.found.append(number)
        return self.found.index(number)
