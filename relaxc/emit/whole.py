"""Which values of a section have no fraction, as far as their operations tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from relaxc.emit.kernel import Value

MADE = frozenset({"round", "floor", "dither", "number", "sign", "logb", "level", "index", "count"})
"""Operations whose results are whole, infinite or NaN, whatever they are done to."""
KEPT = frozenset({"add", "sub", "mul", "neg", "abs", "least", "greatest"})
"""Operations that make such a number of such numbers, rounded or not."""


def whole(values: Sequence[Value], known: Collection[int] = ()) -> frozenset[int]:
    """The places of those that are whole numbers, infinite or NaN. `known` are so for another reason."""
    found = set(known)
    for number, value in enumerate(values):
        if value.op in MADE or _constant(value) or _kept(value, found):
            found.add(number)
    return frozenset(found)


def _constant(value: Value) -> bool:
    return value.op == "constant" and value.detail is not None and value.detail.is_integer()


def _kept(value: Value, found: set[int]) -> bool:
    if value.op == "where":
        return found.issuperset(value.arguments[1:])
    return value.op in KEPT and found.issuperset(value.arguments)
