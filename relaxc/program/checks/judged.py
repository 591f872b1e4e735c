"""A body with its types: what every check starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from relaxc.language.source import Source, Span
from relaxc.program.agreement import Agreements, agreements_of
from relaxc.program.facts import lets_of
from relaxc.program.ir import (
    Assign,
    Body,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Phase,
    Read,
    Statement,
    children,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.shapes import Form, Shape, forms_of

NOWHERE = Span(Source("", ""), 0, 0)
"""The place of what was made without a text."""


@dataclass(frozen=True, slots=True)
class Judged:
    body: Body
    forms: dict[str, Form]
    agreements: Agreements
    lets: dict[str, Let]

    @property
    def statements(self) -> list[Statement]:
        """All, in text order, those inside of others too."""
        return list(flattened(self.body.statements))

    def in_phase(self, phase: str) -> list[Statement]:
        """Those of `statements` that may run while one of the body's phases is on."""
        return [
            inner
            for statement in self.body.statements
            if not isinstance(statement, Phase) or statement.name == phase
            for inner in flattened((statement,))
        ]

    def is_code(self, e: Expression) -> bool:
        return isinstance(e, Encode) or (isinstance(e, Read) and self.forms[e.name].shape is Shape.CODE)

    def encode_of(self, e: Expression) -> Encode | None:
        """What made a code; None for what is none."""
        if isinstance(e, Read) and e.name in self.lets:
            e = self.lets[e.name].value
        return e if isinstance(e, Encode) else None

    def exchanges(self) -> Iterator[Exchange]:
        for statement in self.statements:
            for e in values(statement):
                yield from (part for part in within(e) if isinstance(part, Exchange))

    def parts(self, e: Expression) -> Iterator[Expression]:
        """All expressions that `e` is made of, itself and through lets, each let once."""
        return self._parts(e, children)

    def beside(self, e: Expression) -> set[str]:
        """The names that `e` is made from without an exchange between, lets included."""
        return _names(self._parts(e, _outside_exchanges))

    def sources(self, e: Expression) -> set[str]:
        """All that `e` is made from: names that it reads, itself and through lets, those lets included."""
        return _names(self.parts(e))

    def _parts(self, e: Expression, inside: Callable[[Expression], Sequence[Expression]]) -> Iterator[Expression]:
        seen: set[str] = set()
        waiting = [e]
        while waiting:
            part = waiting.pop()
            yield part
            waiting += inside(part)
            if isinstance(part, Read) and part.name in self.lets and part.name not in seen:
                seen.add(part.name)
                waiting.append(self.lets[part.name].value)


def _names(parts: Iterable[Expression]) -> set[str]:
    return {part.name for part in parts if isinstance(part, Read)}


def _outside_exchanges(e: Expression) -> tuple[Expression, ...]:
    return () if isinstance(e, Exchange) else children(e)


def judge(body: Body) -> Judged:
    return Judged(body, forms_of(body), agreements_of(body), lets_of(body))


def values(statement: Statement) -> tuple[Expression, ...]:
    """The expressions of a statement itself, not of those in its block."""
    match statement:
        case Let(value=value) | Assign(value=value):
            return (value,)
        case Every(period=period):
            return (period,)
    return ()


def place(node: Statement | Expression) -> Span:
    return getattr(node, "span", None) or NOWHERE
