"""The syntax tree: one class for each production of grammar/relax.lark, each with its place in the text.

Places do not take part in equality, so that parse(format(file)) == file.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields

from relaxc.language.source import Source, Span


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """Equality, hash and text are inherited: made for each class, they would double the time that `relaxc check` takes
    to import this module."""

    span: Span = field(compare=False, repr=False)

    def __eq__(self, other: object) -> bool:
        if self.__class__ is not other.__class__:
            return NotImplemented
        return self._compared() == other._compared()

    def __hash__(self) -> int:
        return hash((self.__class__, self._compared()))

    def __repr__(self) -> str:
        shown = [f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr]
        return f"{self.__class__.__name__}({', '.join(shown)})"

    def _compared(self) -> tuple[object, ...]:
        return tuple([getattr(self, f.name) for f in fields(self) if f.compare])


# --- expressions


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Number(Node):
    """A plain number; `text` is how it was written (`1e-8` stays `1e-8`)."""

    value: float
    text: str = field(compare=False)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantity(Node):
    """A number with a unit: 8bit, 1%, 5ms, 100Mbps. `value` is in the unit written."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class String(Node):
    value: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Name(Node):
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Member(Node):
    """`optimizer.weight_decay`"""

    base: str
    name: str


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Keyword(Node):
    name: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Call(Node):
    function: str
    arguments: tuple[Expression, ...]
    keywords: tuple[Keyword, ...] = ()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Unary(Node):
    """`operator` is "-" or "not"."""

    operator: str
    operand: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Binary(Node):
    """`operator` is one of + - * / ^ and or < <= > >= == !="""

    operator: str
    left: Expression
    right: Expression


Expression = Number | Quantity | String | Name | Member | Call | Unary | Binary


# --- statements of an algorithm


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class State(Node):
    name: str
    value: Expression | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Let(Node):
    name: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Assign(Node):
    """`operator` is one of = += -= *= /="""

    name: str
    operator: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Step(Node):
    pass


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Every(Node):
    period: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class After(Node):
    delay: Expression
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Phase(Node):
    name: str
    length: Expression | None
    body: tuple[Statement, ...]


Statement = State | Let | Assign | Step | Every | After | Phase


# --- statements of a codec


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Per(Node):
    """`per block(512)`, `per tensor`, `per chunk`"""

    unit: str
    size: Expression | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Wire(Node):
    """The type of a sent field: `f32`, `uint(bits)`."""

    name: str
    width: Expression | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Send(Node):
    name: str
    wire: Wire
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Receive(Node):
    near: str | None
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Guard(Node):
    value: Expression


CodecStatement = Per | State | Let | Send | Receive | Guard | Assign


# --- items of a file


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Parameter(Node):
    """A parameter of an algorithm or codec, with its default."""

    name: str
    default: Expression | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Param(Node):
    name: str
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Clause(Node):
    key: str
    key_span: Span = field(compare=False, repr=False)
    value: Expression


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Cluster(Node):
    clauses: tuple[Clause, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Relax(Node):
    """`relax gradients for ... { ... }` (algorithm is None) or `relax with choco { ... }` (quantity is None).

    `clauses` is None where no braces were written.
    """

    quantity: str | None
    algorithm: str | None
    target_span: Span = field(compare=False, repr=False)
    selector: Expression | None
    clauses: tuple[Clause, ...] | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Algorithm(Node):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[Statement, ...]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Codec(Node):
    name: str
    parameters: tuple[Parameter, ...]
    body: tuple[CodecStatement, ...]


Item = Param | Cluster | Relax | Algorithm | Codec


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comment(Node):
    """`text` starts with `#`; `own_line` is false where code stands before it on its line."""

    text: str
    own_line: bool


@dataclass(frozen=True, slots=True)
class File:
    source: Source = field(compare=False, repr=False)
    items: tuple[Item, ...]
    comments: tuple[Comment, ...] = field(compare=False)
