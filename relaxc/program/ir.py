"""The program: what one iteration means, for this worker's tensor of one parameter.

One small algebra of expressions serves algorithms and codecs; statements are those of the language. Every node that
came from text keeps its place. Node types are frozen: passes build new programs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxc.language.source import Span
from relaxc.wire.layout import Layout
from relaxc.wire.routes import Kernel

# --- expressions


@dataclass(frozen=True, slots=True)
class Constant:
    """A number known when the spec is compiled; folded in f64, rounded once where it is used."""

    value: float


@dataclass(frozen=True, slots=True)
class Read:
    """A name in scope: `grad`, `weight`, a let or a state; in a codec `x`, a let or a field."""

    name: str


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function. Functions: + - * / ^ neg < <= > >= == != and or not, where, and FUNCTIONS below."""

    function: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Reduce:
    """Over the elements of a codec's block, in the order of wire/sums.py: min, max, sum, mean, norm."""

    function: str
    argument: Expression


@dataclass(frozen=True, slots=True)
class Dither:
    """floor(argument + u), u drawn as wire/dither.py says."""

    argument: Expression


@dataclass(frozen=True, slots=True)
class Mean:
    """The exchange: the mean of `value` over all workers, every worker receiving the same bits.

    `feedback` is none, worker or both; `route` is all or ring; `place` numbers the encoding places of a program: this
    one's contributions have `place`, its re-encoding after the sum has `place + 1`.
    """

    value: Expression
    codec: Codec | None
    feedback: str
    route: str
    place: int


@dataclass(frozen=True, slots=True)
class Carried:
    """A mean as messages: what `passes/carry` makes of it. `kernels` are the local computations of its route."""

    value: Expression
    codec: Codec
    feedback: str
    route: str
    place: int
    kernels: tuple[Kernel, ...]


Expression = Constant | Read | Apply | Reduce | Dither | Mean | Carried

FUNCTIONS = frozenset({"sqrt", "abs", "sign", "min", "max", "clamp", "round", "floor"})


# --- codecs


@dataclass(frozen=True, slots=True)
class CodecLet:
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Send:
    """Field number `field` of the layout; from here on its name means what the receiver has."""

    field: int
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec with its arguments folded in. `text` is its full form, `minmax(bits = 8, block = 512, ...)`.

    `receive` reads fields, and lets in `steps` that read only fields and constants. `cast` is true where the only
    field is a float per element: such a codec is exempt from scale-freedom and has no bias to feed back.
    """

    text: str
    layout: Layout
    steps: tuple[CodecLet | Send, ...]
    receive: Expression
    dithers: bool

    @property
    def cast(self) -> bool:
        return all(f.per_element and not f.wire.bits for f in self.layout.fields)


# --- statements


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assign:
    name: str
    value: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The user's own optimiser, this parameter's share of it."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class After:
    """The body runs `delay` iterations after its launch, with the lets of the launching iteration."""

    delay: int
    body: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


Statement = Let | Assign | Step | After


Selector = tuple[object, ...] | None
"""A test of a parameter as nested plain tuples, so that it can be stored: ("and", a, b), ("not", a), ("name",
"embed.*"), ("<", "ndim", 2), ("==", "dtype", "f32"). None matches everything. wire/selection.py evaluates it."""


@dataclass(frozen=True, slots=True)
class Body:
    """The program of the parameters that `selector` matches and no earlier body's does."""

    selector: Selector
    statements: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Program:
    bodies: tuple[Body, ...]


def exchanges(statements: tuple[Statement, ...]) -> Iterator[Mean | Carried]:
    """The exchanges of some statements, in text order, late ones included."""
    for statement in statements:
        match statement:
            case Let(value=Mean() | Carried() as value) | Assign(value=Mean() | Carried() as value):
                yield value
            case After(body=body):
                yield from exchanges(body)
