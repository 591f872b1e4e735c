"""From exchange to messages: a mean with a codec becomes the kernels and moves of its route."""

from __future__ import annotations

from dataclasses import replace

from relaxc.program.ir import After, Assign, Body, Carried, Expression, Let, Mean, Program, Statement
from relaxc.wire.routes import ROUTES


def carry(program: Program) -> Program:
    return Program(tuple(replace(body, statements=_statements(body)) for body in program.bodies))


def _statements(body: Body) -> tuple[Statement, ...]:
    return tuple(_statement(s) for s in body.statements)


def _statement(statement: Statement) -> Statement:
    match statement:
        case Let(value=value) | Assign(value=value):
            return replace(statement, value=_expression(value))
        case After(body=body):
            return replace(statement, body=tuple(_statement(s) for s in body))
    return statement


def _expression(e: Expression) -> Expression:
    """An uncompressed mean stays one: the backend's all-reduce carries it, on whichever route that takes."""
    if not isinstance(e, Mean) or e.codec is None:
        return e
    kernels = ROUTES[e.route].kernels(e.feedback)
    return Carried(e.value, e.codec, e.feedback, e.route, e.place, kernels)
