"""Constants: arithmetic done when the spec is checked, params put in where they are named."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from relaxc.language import format, syntax
from relaxc.language.functions import FUNCTIONS, Where, arity, many
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Value
from relaxc.language.vocabulary import FIELDS, SCOPE
from relaxc.language.words import clipped, did_you_mean
from relaxc.wire.numbers import evaluate

ARITHMETIC = ("+", "-", "*", "/", "^")

PERCENT = 100
LARGEST_WHOLE = 2**53

Params = Mapping[str, syntax.Expression | None]
"""Values of the params defined so far; None for one whose own definition has a mistake, which is reported already."""


def fold(e: syntax.Expression, params: Params, report: Report) -> syntax.Expression | None:
    """`e` with params put in and arithmetic done; None after a mistake, which is reported.

    Names that are no params, comparisons, `and`, `or`, `not` and calls of codecs stay.
    """
    match e:
        case syntax.Name():
            return _param(e, params)
        case syntax.Unary():
            return _unary(e, fold(e.operand, params, report), params, report)
        case syntax.Binary():
            return _binary(e, fold(e.left, params, report), fold(e.right, params, report), params, report)
        case syntax.Call():
            return _call(e, params, report)
        case syntax.Member():
            help_ = "a clause takes constants and params"
            report.error("RX0209", f"`{format.expression(e)}` is not known before training", e.span, help=help_)
            return None
        case _:
            return e


def numeric(e: syntax.Expression) -> float | None:
    """The number that a literal is: 1% is 0.01, 8bit is 8, 2steps is 2; None for anything else."""
    match e:
        case syntax.Number(value=value) | syntax.Quantity(value=value, unit="bit" | "step"):
            return value
        case syntax.Quantity(value=value, unit="%"):
            return value / PERCENT
    return None


def plain(e: syntax.Expression) -> Value:
    """A constant as a number where it is one without a unit, else as its text."""
    return whole(e.value) if isinstance(e, syntax.Number) else format.expression(e)


def whole(value: float) -> int | float:
    """An int where that is the same number."""
    return int(value) if value.is_integer() and abs(value) < LARGEST_WHOLE else value


def constant(value: float, span: Span) -> syntax.Number:
    return syntax.Number(span, value, format.number(value))


def _param(e: syntax.Name, params: Params) -> syntax.Expression | None:
    """A param's value, at the place where the param is named."""
    value = params.get(e.name, e)
    return None if value is None else replace(value, span=e.span)


def _unary(
    e: syntax.Unary, operand: syntax.Expression | None, params: Params, report: Report
) -> syntax.Expression | None:
    if operand is None:
        return None
    if e.operator == "not":
        return replace(e, operand=operand)
    if isinstance(operand, syntax.Quantity):
        return replace(operand, value=-operand.value, span=e.span)
    number = _operand(operand, params, report)
    return None if number is None else constant(-number.value, e.span)


def _binary(
    e: syntax.Binary, left: syntax.Expression | None, right: syntax.Expression | None, params: Params, report: Report
) -> syntax.Expression | None:
    if left is None or right is None:
        return None
    if e.operator not in ARITHMETIC:
        return replace(e, left=left, right=right)
    numbers = [number for side in (left, right) if (number := _operand(side, params, report)) is not None]
    return _computed(e.operator, numbers, e, report) if len(numbers) == 2 else None


def _call(e: syntax.Call, params: Params, report: Report) -> syntax.Expression | None:
    given = [folded for a in e.arguments if (folded := fold(a, params, report)) is not None]
    keywords = [replace(k, value=v) for k in e.keywords if (v := fold(k.value, params, report)) is not None]
    if len(given) + len(keywords) < len(e.arguments) + len(e.keywords):
        return None
    if e.function in FUNCTIONS and arity(e.function, Where.CONSTANT):
        return _function(e, given, params, report)
    return replace(e, arguments=tuple(given), keywords=tuple(keywords))


def _function(
    e: syntax.Call, given: list[syntax.Expression], params: Params, report: Report
) -> syntax.Expression | None:
    count, _ = arity(e.function, Where.CONSTANT) or (0, 0)
    if len(given) != count or e.keywords:
        message = f"`{e.function}` takes {many(count, count)}"
        report.error("RX0107", message, e.span, f"{len(given) + len(e.keywords)} given")
        return None
    numbers = [number for a in given if (number := _operand(a, params, report)) is not None]
    return _computed(e.function, numbers, e, report) if len(numbers) == count else None


def _computed(
    function: str, arguments: list[syntax.Number], e: syntax.Expression, report: Report
) -> syntax.Number | None:
    given = [a.value for a in arguments]
    if function in ("/", "mod") and given[1] == 0:
        report.error("RX0208", "division by zero", e.span)
        return None
    value = evaluate((function, *given), {})
    if not math.isfinite(value):
        text = clipped(format.expression(e))
        report.error("RX0208", f"`{text}` has no finite value", e.span)
        return None
    return constant(value, e.span)


def _operand(e: syntax.Expression, params: Params, report: Report) -> syntax.Number | None:
    """`e` as a number to compute with; 1% is 0.01."""
    if isinstance(e, syntax.Quantity) and e.unit == "%":
        return constant(e.value / PERCENT, e.span)
    if isinstance(e, syntax.Number):
        return e
    _no_number(e, params, report)
    return None


def _no_number(e: syntax.Expression, params: Params, report: Report) -> None:
    shown = clipped(format.expression(e))
    if shown in FIELDS:
        report.error(
            "RX0209", f"`{shown}` can't be computed with", e.span, help=f"compare it with a constant: {shown} < 2"
        )
    elif shown in SCOPE:
        report.error("RX0209", f"`{shown}` is not known before training", e.span, help="constants and params are")
    elif isinstance(e, syntax.Name):
        report.error("RX0105", f"no param `{shown}`", e.span, "only numbers and params can be computed with",
                     did_you_mean(shown, params) or f"define it above: param {shown} = ...")  # fmt: skip
    else:
        report.error("RX0209", f"`{shown}` is not a plain number", e.span, "can't be computed with")
