"""Which parameters a selector matches."""

from __future__ import annotations

import json

import pytest

from relaxc.wire.parameters import Parameter
from relaxc.wire.selection import assign, matches

WEIGHT = Parameter(0, "layers.0.norm.weight", (64,), "bf16")


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, True),
        (("name", "*.norm.*"), True),
        (("name", "norm.*"), False),
        (("name", "layers.[0].norm.weight"), False),  # brackets stand for themselves
        (("<", "ndim", 2), True),
        (("and", (">=", "numel", 64), ("==", "dtype", ("text", "bf16"))), True),
        (("or", ("==", "dtype", ("text", "f32")), ("not", (">", "ndim", 0))), False),
    ],
)
def test_a_selector_also_after_a_round_trip_through_json(selector: object, expected: bool) -> None:
    assert matches(selector, WEIGHT) is expected
    assert matches(json.loads(json.dumps(selector)), WEIGHT) is expected


def test_the_first_that_matches_governs() -> None:
    other = Parameter(1, "head.weight", (8, 8), "f32")
    assert assign([("<", "ndim", 2), ("name", "*weight")], [WEIGHT, other]) == [0, 1]
    assert assign([("<", "ndim", 2)], [WEIGHT, other]) == [0, None]
