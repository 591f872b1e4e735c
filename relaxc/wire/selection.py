"""Which parameters a statement governs: the first whose selector matches. Selectors are plain data (program/ir.py)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import Any

from relaxc.wire.parameters import Parameter

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def matches(selector: Any, parameter: Parameter) -> bool:
    """Evaluate a selector; None matches everything. `*` and `?` in a name cross dots, brackets stand for themselves."""
    if selector is None:
        return True
    match selector:
        case ("name" | "and" | "or" | "not" | "<" | "<=" | ">" | ">=" | "==" | "!=" as kind, *rest):
            return _evaluate(kind, rest, parameter)
    raise ValueError(f"not a selector: {selector!r}")


def _evaluate(kind: str, rest: Sequence[Any], parameter: Parameter) -> bool:
    if kind == "name":
        return fnmatchcase(parameter.name, rest[0].replace("[", "[[]"))
    if kind == "not":
        return not matches(rest[0], parameter)
    if kind in ("and", "or"):
        return (all if kind == "and" else any)(matches(part, parameter) for part in rest)
    left, right = (_value(side, parameter) for side in rest)
    return COMPARE[kind](left, right)


def _value(side: Any, parameter: Parameter) -> Any:
    match side:
        case "name":
            return parameter.name
        case "ndim":
            return len(parameter.shape)
        case "numel":
            return parameter.elements
        case "dtype":
            return parameter.dtype
        case ("text", text):
            return text
        case _:
            return side


def assign(selectors: Sequence[Any], parameters: Sequence[Parameter]) -> list[int | None]:
    """For each parameter the number of the first selector that matches it, or None."""
    return [next((n for n, s in enumerate(selectors) if matches(s, p)), None) for p in parameters]
