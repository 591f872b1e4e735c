"""A body with its types: what every check starts from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxc.language.source import Source, Span
from relaxc.program.agreement import Agreements, agreements_of
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

    def sources(self, e: Expression) -> set[str]:
        """All that `e` is made from: names that it reads, itself and through lets, those lets included."""
        found: set[str] = set()
        waiting = [e]
        while waiting:
            for part in within(waiting.pop()):
                if isinstance(part, Read) and part.name not in found:
                    found.add(part.name)
                    if part.name in self.lets:
                        waiting.append(self.lets[part.name].value)
        return found


def judge(body: Body) -> Judged:
    lets = {s.name: s for s in flattened(body.statements) if isinstance(s, Let)}
    return Judged(body, forms_of(body), agreements_of(body), lets)


def values(statement: Statement) -> tuple[Expression, ...]:
    """The expressions of a statement itself, not of those in its block."""
    match statement:
        case Let(value=value) | Assign(value=value):
            return (value,)
        case Every(period=period):
            return (period,)
    return ()


def beside_exchanges(e: Expression) -> Iterator[Expression]:
    """The parts of `e` that are not inside of an exchange, exchanges themselves included."""
    yield e
    if not isinstance(e, Exchange):
        for part in children(e):
            yield from beside_exchanges(part)


def place(node: Statement | Expression) -> Span:
    return getattr(node, "span", None) or NOWHERE
