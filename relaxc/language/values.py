"""Constants: arithmetic done when the spec is checked, params put in where they are named."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeGuard

from relaxc.language import format, syntax
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.vocabulary import FIELDS
from relaxc.language.words import clipped, did_you_mean

ARITHMETIC: dict[str, Callable[[float, float], float]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "^": math.pow,
}  # fmt: skip
FUNCTIONS: dict[str, tuple[int, Callable[..., float]]] = {
    "sqrt": (1, math.sqrt), "abs": (1, abs), "exp": (1, math.exp), "log": (1, math.log), "log2": (1, math.log2),
    "floor": (1, math.floor), "round": (1, round), "min": (2, min), "max": (2, max), "mod": (2, math.fmod),
}  # fmt: skip
"""Functions of constants, with the number of their arguments."""

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
    if not _is_number(operand, params, report):
        return None
    return constant(-operand.value, e.span)


def _binary(
    e: syntax.Binary, left: syntax.Expression | None, right: syntax.Expression | None, params: Params, report: Report
) -> syntax.Expression | None:
    if left is None or right is None:
        return None
    if e.operator not in ARITHMETIC:
        return replace(e, left=left, right=right)
    numbers = [side for side in (left, right) if _is_number(side, params, report)]
    return _computed(ARITHMETIC[e.operator], numbers, e, report) if len(numbers) == 2 else None


def _call(e: syntax.Call, params: Params, report: Report) -> syntax.Expression | None:
    given = [folded for a in e.arguments if (folded := fold(a, params, report)) is not None]
    keywords = [replace(k, value=v) for k in e.keywords if (v := fold(k.value, params, report)) is not None]
    if len(given) + len(keywords) < len(e.arguments) + len(e.keywords):
        return None
    if e.function in FUNCTIONS:
        return _function(e, given, params, report)
    return replace(e, arguments=tuple(given), keywords=tuple(keywords))


def _function(
    e: syntax.Call, given: list[syntax.Expression], params: Params, report: Report
) -> syntax.Expression | None:
    count, function = FUNCTIONS[e.function]
    if len(given) != count or e.keywords:
        many = "one argument" if count == 1 else f"{count} arguments"
        report.error("RX0107", f"`{e.function}` takes {many}", e.span, f"{len(given) + len(e.keywords)} given")
        return None
    numbers = [a for a in given if _is_number(a, params, report)]
    return _computed(function, numbers, e, report) if len(numbers) == count else None


def _computed(
    function: Callable[..., float], arguments: list[syntax.Number], e: syntax.Expression, report: Report
) -> syntax.Number | None:
    try:
        value = float(function(*(a.value for a in arguments)))
    except ZeroDivisionError:
        report.error("RX0208", "division by zero", e.span)
        return None
    except (ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        text = clipped(format.expression(e))
        report.error("RX0208", f"`{text}` has no finite value", e.span)
        return None
    return constant(value, e.span)


def _is_number(e: syntax.Expression, params: Params, report: Report) -> TypeGuard[syntax.Number]:
    if isinstance(e, syntax.Number):
        return True
    shown = clipped(format.expression(e))
    if shown in FIELDS:
        report.error(
            "RX0209", f"`{shown}` can't be computed with", e.span, help=f"compare it with a constant: {shown} < 2"
        )
    elif isinstance(e, syntax.Name):
        report.error("RX0105", f"no param `{shown}`", e.span, "only numbers and params can be computed with",
                     did_you_mean(shown, params) or f"define it above: param {shown} = ...")  # fmt: skip
    else:
        report.error("RX0209", f"`{shown}` is not a plain number", e.span, "can't be computed with")
    return False
