"""A body in steps of one kind each: exchanges, codes and norms stand before the statement that reads them.

Names that come in here: `exchange.N`, what exchange N brings; `coded.C`, what a receiver makes of the code C; `norm.N`,
a cell; `own.N`, a number. Everything else in an expression is arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxc.language.source import Span
from relaxc.program.ir import After, Assign, Codec, Every, Exchange, Expression, Let, Phase, Step


@dataclass(frozen=True, slots=True)
class Code:
    name: str
    value: Expression
    codec: Codec
    place: int
    span: Span | None


@dataclass(frozen=True, slots=True)
class Launch:
    """Exchange `number` of `value`, or of `code` where that is not None: then `value` is what was put into it."""

    number: int
    value: Expression | None
    code: str | None


@dataclass(frozen=True, slots=True)
class Measure:
    """`value` is a Reduce."""

    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Cut:
    """Gradients are what backward returns with; from here on they are what the user has made of them."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What the block of an `after` has of its launch. `kept` are (name, number of kept.N), `slots` the exchanges that
    land late, `lets` what is computed from all of these where it lands."""

    numbers: tuple[str, ...] = ()
    kept: tuple[tuple[str, int], ...] = ()
    slots: tuple[int, ...] = ()
    lets: tuple[Let, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        exchanges = (f"exchange.{n}" for n in self.slots)
        return frozenset([*self.numbers, *(n for n, _ in self.kept), *exchanges, *(let.name for let in self.lets)])


@dataclass(frozen=True, slots=True)
class Block:
    """`guard` counts the blocks of a body in text order; `captured` is for an `after`."""

    guard: int
    statement: Every | Phase | After
    body: tuple[Item, ...]
    captured: Captured


Item = Let | Assign | Step | Code | Launch | Measure | Cut | Block


def value_of(item: Item) -> Expression | None:
    return item.value if isinstance(item, Let | Assign | Code | Launch | Measure) else None


def all_items(items: tuple[Item, ...]) -> Iterator[Item]:
    for item in items:
        yield item
        if isinstance(item, Block):
            yield from all_items(item.body)


@dataclass
class Sent:
    """An exchange of a body. `block` is the block that runs it, `copies` how many launches can be under way, `after`
    the block that reads it in a later iteration, -1 for none, `now` whether this iteration does. `shape` is cell or
    tensor."""

    exchange: Exchange
    code: str | None
    block: int
    copies: int = 1
    after: int = -1
    now: bool = False
    shape: str = "tensor"

    @property
    def late(self) -> bool:
        return self.after >= 0
