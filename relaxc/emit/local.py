"""Arithmetic of an algorithm within a fragment: what its names mean, and what the host evaluates for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relaxc.emit.arithmetic import Arithmetic
from relaxc.emit.coding import finite_or
from relaxc.emit.kernel import real_of
from relaxc.emit.numbers import Given, Number, literal, plain
from relaxc.emit.operands import Operands
from relaxc.program.ir import Apply, Constant, Expression, Optimizer, Read, children
from relaxc.program.paths import FINITE, STORED, PathBody

SPECIAL = ("arrived", "coded", "own_coded")
OPTIMIZER = "optimizer."


def types_of(body: PathBody) -> dict[str, str]:
    """The type (emit/kernel.Operand) of each name in a body that lives in memory; others are numbers."""
    types = {"weight": "tensor", "grad": "tensor"}
    types |= {s.name: _type(s.shape) for s in body.states if s.shape != "number"}
    types |= {f"kept.{n}": _type(kept.shape) for n, kept in enumerate(body.kept)}
    return types | {f"slot.{n}": _type(transfer.shape) for n, transfer in enumerate(body.transfers)}


def _type(shape: str) -> str:
    return "cell" if shape == "cell" else "real"


@dataclass
class Scope:
    """What names mean in a fragment, for all sections of its kernel."""

    dtype: str
    types: Mapping[str, str]
    lets: Mapping[str, Expression]
    operands: Operands = field(default_factory=Operands)
    given: Given = field(default_factory=Given)
    measures: bool = False
    """Whether something was reduced over the whole parameter."""

    def host(self, e: Expression) -> bool:
        """Whether the host evaluates `e`: nothing in it lives in memory."""
        match e:
            case Read(name=name):
                return self.host(self.lets[name]) if name in self.lets else name not in (*self.types, *SPECIAL)
            case Optimizer(tensor=tensor):
                return not tensor
            case Apply(function=function) if function in (STORED, FINITE):
                return False
            case Constant() | Apply():
                return all(map(self.host, children(e)))
        return False

    def plain(self, e: Expression) -> Number:
        return plain(e, self.lets.get)


@dataclass
class Local(Arithmetic):
    """Division is IEEE's; the largest parts that are numbers are the host's; lets are computed when first read.
    `special` computes `arrived`, `coded` and `own_coded`."""

    scope: Scope = field(kw_only=True)
    special: Callable[[str], int] = field(kw_only=True)

    def value(self, e: Expression) -> int:
        if self.scope.host(e):
            return self.given(self.scope.plain(e))
        match e:
            case Optimizer(name=name):
                return self.scope.operands.load(self.builder, OPTIMIZER + name, "tensor")
        return super().value(e)

    def given(self, number: Number) -> int:
        known = literal(number)
        if known is not None:
            return self.builder.constant(known)
        return self.builder.add("given", detail=self.scope.given.place(number))

    def resolved(self, e: Expression) -> Expression:
        known = literal(self.scope.plain(e)) if self.scope.host(e) else None
        return e if known is None else Constant(known)

    def reduce(self, function: str, value: int) -> int:
        self.scope.measures = True
        return super().reduce(function, value)

    def apply(self, function: str, arguments: tuple[Expression, ...]) -> int:
        if function == FINITE:
            return finite_or(self.builder, *map(self.number, arguments))
        if function == STORED:
            return self.stored(self.number(arguments[0]))
        return super().apply(function, arguments)

    def stored(self, value: int) -> int:
        """As the parameter's own type holds it."""
        return value if self.scope.dtype == real_of(self.scope.dtype) else self.builder.add("stored", value)

    def divide(self, above: int, below: int) -> int:
        return self.builder.add("over", above, below)

    def read(self, name: str) -> int:
        if name not in self.names:
            self.names[name] = self.named(name)
        return self.names[name]

    def named(self, name: str) -> int:
        if name in SPECIAL:
            return self.special(name)
        if name not in self.scope.lets:
            return self.scope.operands.load(self.builder, name, self.scope.types[name])
        value = self.value(self.scope.lets[name])
        self.builder.name(value, name)
        return value
