"""Expressions as values of a section. What each means is written down in program/functions.py."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from relaxc.emit.section import Builder
from relaxc.emit.whole import whole
from relaxc.program.ir import Apply, Chosen, Constant, Dither, Expression, Read, Reduce, Transform
from relaxc.wire.numbers import LONGEST_PRODUCT

PLAIN = {
    "+": "add", "-": "sub", "*": "mul", "neg": "neg", "sqrt": "sqrt", "abs": "abs", "sign": "sign", "min": "least",
    "max": "greatest", "round": "round", "floor": "floor", "exp": "exp", "log": "log", "log2": "log2",
    "logb": "logb", "<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne",
}  # fmt: skip
"""Functions that are one operation of a kernel; the others are made of several."""


@dataclass
class Arithmetic:
    """That of a codec, in which x / 0 is 0. `names` binds what is in scope; `known` are values of it without a
    fraction."""

    builder: Builder
    names: dict[str, int]
    known: set[int] = field(default_factory=set)

    def value(self, e: Expression) -> int:
        match e:
            case Constant(value=value):
                return self.builder.constant(value)
            case Read(name=name):
                return self.read(name)
            case Apply(function=function, arguments=arguments):
                return self.apply(function, arguments)
            case Reduce(function=function, argument=argument):
                return self.reduce(function, self.number(argument))
            case Dither(argument=argument):
                return self.builder.add("dither", self.number(argument))
            case Chosen():
                return self.builder.add("chosen")
            case Transform(function=function, argument=argument, side=side):
                return self.builder.add(function, self.number(argument), detail=side)
        raise TypeError(f"no kernel computes {e}")

    def read(self, name: str) -> int:
        return self.names[name]

    def number(self, e: Expression) -> int:
        value = self.value(e)
        return self.builder.add("number", value) if self.builder.values[value].truth else value

    def truth(self, e: Expression) -> int:
        value = self.value(e)
        if self.builder.values[value].truth:
            return value
        return self.builder.add("ne", value, self.builder.constant(0))

    def apply(self, function: str, arguments: tuple[Expression, ...]) -> int:
        if function in ("and", "or", "not"):
            return self.builder.add(function, *map(self.truth, arguments))
        if function == "where":
            return self.builder.add("where", self.truth(arguments[0]), *map(self.number, arguments[1:]))
        if function == "^":
            return self.power(arguments[0], arguments[1])
        numbers = [self.number(a) for a in arguments]
        if function == "/":
            return self.divide(*numbers)
        if function == "clamp":
            return self.builder.add("least", self.builder.add("greatest", *numbers[:2]), numbers[2])
        if function in ("mod", "wrap"):
            return self.left_over("floor" if function == "mod" else "round", *numbers)
        return self.builder.add(PLAIN[function], *numbers)

    def left_over(self, rounding: str, value: int, modulus: int) -> int:
        times = self.builder.add(rounding, self.divide(value, modulus))
        return self.builder.add("sub", value, self.builder.add("mul", modulus, times))

    def divide(self, above: int, below: int) -> int:
        divisor = self.builder.values[below]
        plain = divisor.op == "constant" and np.float32(divisor.detail or 0) != 0  # f32 may have nothing so small
        return self.builder.add("over" if plain else "divide", above, below)

    def power(self, base: Expression, exponent: Expression) -> int:
        match self.resolved(exponent):
            case Constant(value=value) if float(value).is_integer() and abs(value) <= LONGEST_PRODUCT:
                return self.product(self.number(base), int(value))
        by = self.number(exponent)
        if self.resolved(base) == Constant(2.0) and by in whole(self.builder.values, self.known):
            return self.builder.add("power_of_two", by)
        return self.builder.add("power", self.number(base), by)

    def resolved(self, e: Expression) -> Expression:
        """What is known of `e` when the kernel is made."""
        return e

    def product(self, base: int, times: int) -> int:
        result = base if times else self.builder.constant(1)
        for _ in range(abs(times) - 1):
            result = self.builder.add("mul", result, base)
        return result if times >= 0 else self.divide(self.builder.constant(1), result)

    def reduce(self, function: str, value: int) -> int:
        add = self.builder.add
        match function:
            case "min" | "max":
                return add("guard", add("reduce_nan", value), add(f"reduce_{function}", value))
            case "sum":
                return add("reduce_sum", value)
            case "mean":
                return add("over", add("reduce_sum", value), add("count"))
            case "norm":
                return add("sqrt", add("reduce_sum", add("mul", value, value)))
        raise TypeError(f"no reduction {function}")
