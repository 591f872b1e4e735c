"""The exchange that the runtime carries out while backward runs: a body's first statements, in one of two forms."""

from __future__ import annotations

from relaxc.program.ir import ASYNC, After, Assign, Exchange, Expression, Let, Read, Statement
from relaxc.program.paths import Gradient
from relaxc.program.reads import expressions, reads


def take_gradient(statements: tuple[Statement, ...]) -> tuple[Gradient | None, tuple[Statement, ...]]:
    """`grad = mean(grad, ...)`, or `let a = mean(grad, ...)  after k { grad = a }`, and the statements behind it. A
    body that begins otherwise has none, and one of low rank, which is two exchanges, is none."""
    match statements:
        case (Assign(name="grad", value=value), *rest) if _is_mean(value):
            return _gradient(value, 0), tuple(rest)
        case (
            Let(name=let, value=value),
            After(delay=delay, body=(Assign(name="grad", value=Read(name=read)),)),
            *rest,
        ) if (
            delay != ASYNC
            and read == let
            and _is_mean(value)
            and all(let not in reads(e) for e in expressions(tuple(rest)))
        ):
            return _gradient(value, delay), tuple(rest)
    return None, statements


def _is_mean(e: Expression) -> bool:
    return (
        isinstance(e, Exchange)
        and e.kind == "mean"
        and not e.rank
        and isinstance(e.value, Read)
        and e.value.name == "grad"
    )


def _gradient(e: Expression, delay: int) -> Gradient:
    assert isinstance(e, Exchange)
    return Gradient(e, delay)
