"""Tests of a parameter, typed and brought into one form.

What comes out is made of `and`, `or` and `not` over: a String, which tests the name; comparisons of Name("ndim") or
Name("numel") with a Number; `==` and `!=` of Name("dtype") with the Name of a dtype. The field is always on the left.
"""

from __future__ import annotations

from dataclasses import replace

from relaxc.language import format, syntax
from relaxc.language.report import Report
from relaxc.language.values import Params, fold
from relaxc.language.vocabulary import DTYPES, FIELDS
from relaxc.language.words import clipped, did_you_mean, listed

MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
LONG_DTYPES = {
    "float16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "float32": "f32",
    "float": "f32",
    "float64": "f64",
    "double": "f64",
}


def selector(e: syntax.Expression, params: Params, report: Report) -> syntax.Expression | None:
    """The test that the expression `e` is; None after a mistake, which is reported."""
    match e:
        case syntax.Unary(operator="not"):
            operand = selector(e.operand, params, report)
            return None if operand is None else replace(e, operand=operand)
        case syntax.Binary(operator="and" | "or"):
            left, right = selector(e.left, params, report), selector(e.right, params, report)
            return None if left is None or right is None else replace(e, left=left, right=right)
        case _:
            folded = fold(e, params, report)
            return None if folded is None else _test(folded, report)


def _test(e: syntax.Expression, report: Report) -> syntax.Expression | None:
    match e:
        case syntax.String():
            return e
        case syntax.Binary():
            return _comparison(e, report)
        case syntax.Name() if e.name not in FIELDS:
            _unknown(e, report)
        case _:
            report.error(
                "RX0210", f"`{_shown(e)}` is not a test", e.span, help=EXAMPLES.get(_shown(e), EXAMPLES["ndim"])
            )
    return None


EXAMPLES = {
    "name": 'write the name in quotes: "*.norm.*"',
    "ndim": "write a test such as ndim < 2",
    "numel": "write a test such as numel > 4096",
    "dtype": "write a test such as dtype == bf16",
}


def _comparison(e: syntax.Binary, report: Report) -> syntax.Expression | None:
    turned = e if _is_field(e.left) else replace(e, operator=MIRRORED[e.operator], left=e.right, right=e.left)
    field = turned.left
    if not isinstance(field, syntax.Name) or field.name not in FIELDS:
        _no_field(e, report)
        return None
    if field.name == "name":
        return _name(turned, report)
    if field.name == "dtype":
        return _dtype(turned, report)
    return _number(turned, field, report)


def _is_field(e: syntax.Expression) -> bool:
    return isinstance(e, syntax.Name) and e.name in FIELDS


def _unknown(e: syntax.Name, report: Report) -> None:
    help_ = (
        did_you_mean(e.name, FIELDS) or f'a selector tests name, ndim, numel and dtype; a name is quoted: "{e.name}"'
    )
    report.error("RX0105", f"no field or param `{e.name}`", e.span, help=help_)


def _no_field(e: syntax.Binary, report: Report) -> None:
    unknown = next((side for side in (e.left, e.right) if isinstance(side, syntax.Name)), None)
    if unknown:
        _unknown(unknown, report)
    else:
        help_ = f"compare {listed(FIELDS)} with a value"
        report.error("RX0210", f"`{_shown(e)}` tests nothing of a parameter", e.span, help=help_)


def _name(e: syntax.Binary, report: Report) -> syntax.Expression | None:
    if e.operator not in ("==", "!=") or not isinstance(e.right, syntax.String):
        report.error(
            "RX0210", "a name is compared with a string, by == or !=", e.span, help='write name == "..." or just "..."'
        )
        return None
    test = replace(e.right, span=e.span)
    return test if e.operator == "==" else syntax.Unary(e.span, "not", test)


def _dtype(e: syntax.Binary, report: Report) -> syntax.Expression | None:
    written = e.right.value if isinstance(e.right, syntax.String) else _shown(e.right)
    if e.operator not in ("==", "!="):
        report.error("RX0210", "dtypes have no order", e.span, help="compare them by == or !=")
    elif not isinstance(e.right, syntax.Name) or written not in DTYPES:
        meant = LONG_DTYPES.get(written.removeprefix("torch."), written)
        help_ = f"write {meant}" if meant in DTYPES else f"dtypes are {listed(DTYPES, 'and')}"
        report.error("RX0210", f"no dtype `{_shown(e.right)}`", e.right.span, help=help_)
    else:
        return e
    return None


def _number(e: syntax.Binary, field: syntax.Name, report: Report) -> syntax.Expression | None:
    if not isinstance(e.right, syntax.Number):
        message = f"`{field.name}` is compared with `{_shown(e.right)}`, which is not a number"
        report.error("RX0210", message, e.right.span, help=f"write {field.name} {e.operator} 2")
        return None
    if _impossible(e.operator, e.right.value):
        report.error(
            "RX0305",
            f"`{_shown(e)}` can never be true",
            e.span,
            f"{field.name} is a whole number from 0 up",
            "delete it",
        )
        return None
    return e


def _impossible(operator: str, value: float) -> bool:
    return {"<": value <= 0, "<=": value < 0, "==": value < 0 or not value.is_integer()}.get(operator, False)


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
