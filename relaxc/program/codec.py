"""A codec as written, with its arguments folded in: syntax.Codec -> ir.Codec."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse, Value
from relaxc.program.ir import FUNCTIONS, Apply, Codec, CodecLet, Constant, Dither, Expression, Read, Reduce, Send
from relaxc.wire.layout import FLOAT_BYTES, Field, Layout, WireType

ANY_BLOCK = 512
"""Block of a codec without `per`: it changes no byte, only how the work is cut."""

LARGEST_BLOCK = 1 << 24
"""The largest count that is exact in f32."""

REDUCTIONS = {"min", "max", "sum", "mean", "norm"}


def lower_codec(use: CodecUse) -> Codec:
    """Raise SpecError (RX02) where the codec's body is not one that can be compiled."""
    return _Lowering(dict(use.arguments)).codec(use)


@dataclass
class _Lowering:
    arguments: dict[str, Value]
    block: int = ANY_BLOCK
    varies: dict[str, bool] = field(default_factory=lambda: {"x": True})
    """The names in scope, and whether each differs from element to element."""
    received: set[str] = field(default_factory=set)
    """Those that the receiver has too: fields, and lets that read only what it has."""
    dithers: bool = False

    def codec(self, use: CodecUse) -> Codec:
        steps: list[CodecLet | Send] = []
        fields: list[Field] = []
        receive: Expression | None = None
        for statement in use.definition.body:
            match statement:
                case syntax.Per():
                    self.block = self.block_size(statement)
                case syntax.Let(name=name, value=value):
                    steps.append(self.let(name, value))
                case syntax.Send(name=name, wire=wire, value=value):
                    lowered = self.expression(value)
                    self.bind(name, lowered, received=True)
                    steps.append(Send(len(fields), name, lowered))
                    fields.append(Field(name, self.wire(wire), self.varies[name]))
                case syntax.Receive():
                    receive = self.receive(statement)
        if receive is None:
            raise _error(use.definition.span, f"codec {use.name} has no `receive`")
        if not fields:
            raise _error(use.definition.span, f"codec {use.name} sends nothing")
        return Codec(str(use), Layout(self.block, tuple(fields)), tuple(steps), receive, self.dithers)

    def let(self, name: str, value: syntax.Expression) -> CodecLet:
        lowered = self.expression(value)
        self.bind(name, lowered, received=self.missing(lowered) is None)
        return CodecLet(name, lowered)

    def bind(self, name: str, value: Expression, received: bool) -> None:
        self.varies[name] = self.per_element(value)
        (self.received.add if received else self.received.discard)(name)

    def receive(self, statement: syntax.Receive) -> Expression:
        if statement.near is not None:
            raise _error(statement.span, "`receive near` is not built yet")
        lowered = self.expression(statement.value)
        if missing := self.missing(lowered):
            help = "it has what was sent, parameters, and lets that read nothing else"
            raise _error(statement.span, f"the receiver has no {missing}", help)
        return lowered

    def missing(self, e: Expression) -> str | None:
        """The first thing in `e` that a receiver does not have."""
        match e:
            case Read(name=name):
                return None if name in self.received else f"`{name}`"
            case Apply(arguments=arguments):
                return next(filter(None, map(self.missing, arguments)), None)
            case Reduce(function=function):
                return f"block to take {function} of"
            case Dither():
                return "random bits"
        return None

    def block_size(self, per: syntax.Per) -> int:
        if per.unit != "block" or per.size is None:
            raise _error(per.span, f"`per {per.unit}` is not built yet", "use `per block(n)`")
        size = self.constant(per.size)
        if not size.is_integer() or not 1 <= size <= LARGEST_BLOCK:
            raise _error(per.span, f"a block of {size:g} elements", f"use a whole number from 1 to {LARGEST_BLOCK}")
        return int(size)

    def wire(self, wire: syntax.Wire) -> WireType:
        if wire.name in ("uint", "int"):
            bits = int(self.constant(wire.width)) if wire.width else 0
            if not 1 <= bits <= 8:
                raise _error(wire.span, f"{wire.name} of {bits} bits", "a field has 1 to 8 bits")
            return WireType(wire.name, bits)
        if wire.name != "real" and wire.name not in FLOAT_BYTES:
            raise _error(wire.span, f"no wire type {wire.name}", "use f32, f16, bf16, real, uint(n) or int(n)")
        return WireType(wire.name)

    def constant(self, expression: syntax.Expression) -> float:
        lowered = self.expression(expression)
        if not isinstance(lowered, Constant):
            raise _error(expression.span, "not a constant")
        return lowered.value

    def per_element(self, e: Expression) -> bool:
        match e:
            case Read(name=name):
                return self.varies[name]
            case Apply(arguments=arguments):
                return any(self.per_element(a) for a in arguments)
            case Dither():
                return True
            case _:
                return False

    def expression(self, e: syntax.Expression) -> Expression:
        match e:
            case syntax.Number(value=value):
                return Constant(float(value))
            case syntax.Name(name=name):
                return self.name(e, name)
            case syntax.Unary(operator="-", operand=operand):
                return fold("neg", (self.expression(operand),))
            case syntax.Unary(operator="not", operand=operand):
                return Apply("not", (self.expression(operand),))
            case syntax.Binary(operator=operator, left=left, right=right):
                return fold(operator, (self.expression(left), self.expression(right)))
            case syntax.Call():
                return self.call(e)
            case _:
                raise _error(e.span, "not allowed in a codec")

    def name(self, e: syntax.Name, name: str) -> Expression:
        if name in self.varies:
            return Read(name)
        value = self.arguments.get(name)
        if isinstance(value, (int, float)):
            return Constant(float(value))
        raise _error(e.span, f"no name {name} in this codec")

    def call(self, e: syntax.Call) -> Expression:
        if e.function == "round" and len(e.arguments) == 2:
            return self.rounded(e.arguments[0], e.arguments[1])
        arguments = tuple(self.expression(a) for a in e.arguments)
        if e.function == "dither":
            return self.dither(arguments[0])
        if e.function in REDUCTIONS and len(arguments) == 1:
            return Reduce(e.function, arguments[0])
        if e.function == "where" or e.function in FUNCTIONS:
            return fold(e.function, arguments)
        raise _error(e.span, f"no function {e.function} in a codec")

    def rounded(self, value: syntax.Expression, mode: syntax.Expression) -> Expression:
        how = self.arguments.get(mode.name, mode.name) if isinstance(mode, syntax.Name) else None
        if how not in ("nearest", "stochastic"):
            raise _error(mode.span, "not a rounding", "use nearest or stochastic")
        lowered = self.expression(value)
        return self.dither(lowered) if how == "stochastic" else fold("round", (lowered,))

    def dither(self, argument: Expression) -> Expression:
        self.dithers = True
        return Dither(argument)


def fold(function: str, arguments: tuple[Expression, ...]) -> Expression:
    """Apply, folded in f64 where all arguments are constants (x / 0 is 0)."""
    values = [a.value for a in arguments if isinstance(a, Constant)]
    if len(values) == len(arguments) and function in _FOLDED:
        return Constant(_folded(function, values))
    return Apply(function, arguments)


def _folded(function: str, values: list[float]) -> float:
    """Where Python raises, what IEEE arithmetic gives: infinity or NaN."""
    try:
        result = _FOLDED[function](*values)
    except ZeroDivisionError:
        return 0.0
    except OverflowError:
        return math.inf
    except ValueError:
        return math.nan
    return math.nan if isinstance(result, complex) else float(result)


_FOLDED: dict[str, Callable[..., float | complex]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b if b else 0.0,
    "^": lambda a, b: a**b,
    "neg": lambda a: -a,
    "sqrt": math.sqrt,
    "abs": abs,
    "min": min,
    "max": max,
    "floor": math.floor,
    "round": round,
}


def _error(span: Span, message: str, help: str | None = None) -> SpecError:
    return SpecError([Diagnostic("RX0230", message, (Label(span),), help=help)])
