"""Which names expressions and statements read."""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.program.ir import Assign, Every, Expression, Let, Read, Statement, flattened, within


def reads(e: Expression) -> frozenset[str]:
    return frozenset(part.name for part in within(e) if isinstance(part, Read))


def expressions(statements: tuple[Statement, ...]) -> Iterator[Expression]:
    """All that these statements and those inside of them evaluate."""
    for statement in flattened(statements):
        match statement:
            case Let(value=value) | Assign(value=value) | Every(period=value):
                yield value
