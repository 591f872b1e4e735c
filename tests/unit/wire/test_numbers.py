"""Expressions over numbers: numpy's f64 arithmetic is the oracle, plus what is said of nan, inf and zeros."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxc.wire.numbers import FUNCTIONS, evaluate, names

INF, NAN = math.inf, math.nan


def same(a, b):
    """Equal with the sign of zero, or both nan."""
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        (["/", 1, 0], INF),
        (["/", -1, 0], -INF),
        (["/", 1, -0.0], -INF),
        (["/", 0, 0], NAN),
        (["/", NAN, 0], NAN),
        (["*", 1e200, 1e200], INF),
        (["^", 2, 10], 1024),
        (["^", 10, 400], INF),
        (["^", -10, 401], -INF),
        (["^", -10, 400], INF),
        (["^", 0, -1], INF),
        (["^", -0.0, -3], -INF),
        (["^", -0.0, -2], INF),
        (["^", -8, ["/", 1, 3]], NAN),
        (["^", NAN, 0], 1),
        (["exp", 1000], INF),
        (["exp", -1000], 0),
        (["log", 0], -INF),
        (["log", -1], NAN),
        (["log2", 8], 3),
        (["log2", -INF], NAN),
        (["logb", 8], 3),
        (["logb", -7.9], 2),
        (["logb", 5e-324], -1074),
        (["logb", -0.0], -INF),
        (["logb", -INF], INF),
        (["logb", NAN], NAN),
        (["sqrt", -1], NAN),
        (["sqrt", 9], 3),
        (["round", 0.5], 0),
        (["round", 1.5], 2),
        (["round", -0.5], -0.0),
        (["round", INF], INF),
        (["round", NAN], NAN),
        (["floor", -0.5], -1),
        (["floor", -INF], -INF),
        (["sign", -3], -1),
        (["sign", -0.0], 0),
        (["sign", NAN], NAN),
        (["mod", 5, 3], 2),
        (["mod", -5, 3], 1),
        (["mod", 5, -3], -1),
        (["mod", 5, 0], NAN),
        (["mod", INF, 3], NAN),
        (["wrap", 5, 3], -1),
        (["wrap", 4, 3], 1),
        (["wrap", -4, 3], -1),
        (["wrap", 1, 0], NAN),
        (["min", NAN, 1], NAN),
        (["min", 1, NAN], NAN),
        (["max", 1, NAN], NAN),
        (["min", 1, 2], 1),
        (["max", 1, 2], 2),
        (["clamp", 7, 0, 1], 1),
        (["clamp", -7, 0, 1], 0),
        (["where", ["<", "t", 3], 10, 20], 10),
        (["where", NAN, 10, 20], 10),
        (["and", 2, 0], 0),
        (["or", 2, 0], 1),
        (["not", 0], 1),
        (["neg", 0], -0.0),
        (["==", NAN, NAN], 0),
        (["!=", NAN, NAN], 1),
        (["abs", -2], 2),
        ("t", 2),
        (True, 1),
    ],
    ids=str,
)
def test_values(expression, value):
    assert same(evaluate(expression, {"t": 2}), float(value))


def test_a_correction_of_bias_as_tuples_and_as_json():
    expression = ("/", "lr", ("-", 1.0, ("^", 0.9, ("+", "t", 1.0))))
    expected = 0.1 / (1 - 0.9**5)
    assert evaluate(expression, {"lr": 0.1, "t": 4}) == expected
    assert evaluate(json.loads(json.dumps(expression)), {"lr": 0.1, "t": 4}) == expected
    assert names(expression) == {"lr", "t"}


def test_names_are_not_functions():
    assert names(["min", "max", ["+", "min", 1]]) == {"max", "min"}
    assert names(3.0) == set()
    assert evaluate(["min", "max", "min"], {"max": 2, "min": 1}) == 1


def test_what_is_wrong_is_said():
    with pytest.raises(KeyError, match="warmup"):
        evaluate(["+", "warmup", 1], {})
    for wrong in (["tan", 1], [], None, {"a": 1}):
        with pytest.raises(ValueError, match="not an expression over numbers"):
            evaluate(wrong, {})


def by_division(x: float) -> float:
    """The exponent, from doubling and halving alone."""
    size, exponent = abs(float(x)), 0
    if size == 0 or not size < INF:
        return -INF if size == 0 else size
    while size >= 2:
        size, exponent = size / 2, exponent + 1
    while size < 1:
        size, exponent = size * 2, exponent - 1
    return float(exponent)


NUMPY = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "^": np.power, "neg": np.negative,
    "<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal, "==": np.equal, "!=": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "where": np.where,
    "sqrt": np.sqrt, "abs": np.abs, "sign": np.sign, "min": np.minimum, "max": np.maximum,
    "clamp": lambda x, low, high: np.minimum(np.maximum(x, low), high), "round": np.rint, "floor": np.floor,
    "exp": np.exp, "log": np.log, "log2": np.log2, "logb": by_division, "mod": np.mod,
    "wrap": lambda x, m: x - m * np.rint(np.divide(x, m)),
}  # fmt: skip
ARITY = {"neg": 1, "not": 1, "sqrt": 1, "abs": 1, "sign": 1, "round": 1, "floor": 1, "exp": 1, "log": 1, "log2": 1, "logb": 1,
         "where": 3, "clamp": 3}  # fmt: skip


def test_every_function_has_an_oracle():
    assert set(NUMPY) == set(FUNCTIONS)


@given(st.sampled_from(sorted(NUMPY)), st.lists(st.floats() | st.integers(-9, 9).map(float), min_size=3, max_size=3))
def test_as_numpy_computes(function, values):
    arguments = values[: ARITY.get(function, 2)]
    with np.errstate(all="ignore"):
        expected = float(NUMPY[function](*map(np.float64, arguments)))
    found = evaluate([function, *arguments], {})
    if math.isnan(expected) or math.isinf(expected):
        assert same(found, expected)
    else:
        assert found == pytest.approx(expected, rel=1e-14, abs=0) or found == expected


@given(st.floats(-1e6, 1e6), st.floats(0.01, 100))
def test_wrap_is_the_nearest_to_zero(x, m):
    wrapped = evaluate(["wrap", x, m], {})
    assert abs(wrapped) <= m / 2 + 1e-9 * max(1, abs(x))
    assert (x - wrapped) / m == pytest.approx(round((x - wrapped) / m), abs=1e-6)
