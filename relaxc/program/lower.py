"""Spec -> Program: each `relax` statement becomes the algorithm that it stands for."""

from __future__ import annotations

from collections.abc import Mapping

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.spec import Feedback, Relaxation, Spec, Value
from relaxc.program.codec import lower_codec
from relaxc.program.ir import After, Assign, Body, Codec, Let, Mean, Program, Read, Selector, Statement, Step

PLACES_PER_EXCHANGE = 2
"""A contribution's place and, behind it, its re-encoding's."""


def lower(spec: Spec) -> Program:
    params = dict(spec.params)
    return Program(tuple(_body(relaxation, number, params) for number, relaxation in enumerate(spec.relaxations)))


def _body(relaxation: Relaxation, number: int, params: Mapping[str, Value]) -> Body:
    codec = lower_codec(relaxation.codec) if relaxation.codec else None
    place = number * PLACES_PER_EXCHANGE
    mean = Mean(Read("grad"), codec, feedback_of(relaxation.feedback, codec), relaxation.route, place)
    selector = None if relaxation.selector is None else lower_selector(relaxation.selector, params)
    return Body(selector, _late(mean, relaxation.delay), relaxation.span)


def feedback_of(written: Feedback, codec: Codec | None) -> str:
    """SEMANTICS decision 18: `auto` keeps what a biased codec loses; casts and noise that averages out lose nothing
    that is worth the memory."""
    if written is not Feedback.AUTO:
        return str(written)
    return "none" if codec is None or codec.cast or codec.dithers else "both"


def _late(mean: Mean, delay: int) -> tuple[Statement, ...]:
    """grad = delay(mean, k)  step: `delay(e, k)` in a statement is `let a = e  after k { statement of a }`."""
    if delay == 0:
        return Assign("grad", mean), Step()
    return Let("fresh", mean), After(delay, (Assign("grad", Read("fresh")),)), Step()


def lower_selector(e: syntax.Expression, params: Mapping[str, Value]) -> Selector:
    """The plain-data form of a selector that check has accepted."""
    match e:
        case syntax.String(value=value):
            return ("name", value)
        case syntax.Unary(operator="not", operand=operand):
            return ("not", lower_selector(operand, params))
        case syntax.Binary(operator="and" | "or" as operator, left=left, right=right):
            return (operator, lower_selector(left, params), lower_selector(right, params))
        case syntax.Binary(operator=operator, left=left, right=right):
            return (operator, _side(left, params), _side(right, params))
    raise SpecError([Diagnostic("RX0220", "not a selector", (Label(e.span),))])


def _side(e: syntax.Expression, params: Mapping[str, Value]) -> object:
    match e:
        case syntax.Number(value=value):
            return value
        case syntax.Unary(operator="-", operand=syntax.Number(value=value)):
            return -value
        case syntax.String(value=value):
            return ("text", value)
        case syntax.Name(name="name" | "ndim" | "numel" | "dtype" as field):
            return field
        case syntax.Name(name=name) if name in params:
            value = params[name]
            return ("text", value) if isinstance(value, str) else value
        case syntax.Name(name=name):
            return ("text", name)
    raise SpecError([Diagnostic("RX0220", "not a value of a selector", (Label(e.span),))])
