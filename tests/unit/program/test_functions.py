"""A function of the language is in every table that needs it, and its kernels compute what program/functions.py says."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest
from fragment_cases import body
from kernel_calls import Part, Segment, call, expected, measured

from relaxc.build.kernels import build_kernels
from relaxc.emit.arithmetic import PLAIN
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fragment import FusedFragment, build_fragment
from relaxc.emit.fuse import build_kernel
from relaxc.language.functions import ELEMENTWISE
from relaxc.language.values import ARITHMETIC
from relaxc.program import functions
from relaxc.program.arithmetic import Evaluator
from relaxc.program.ir import Apply, Codec, Expression, Read, Send
from relaxc.program.paths import Fragment, Store
from relaxc.wire import numbers
from relaxc.wire.layout import Field, Layout, WireType
from relaxc.wire.routes import ROUTES

OPERATORS = {
    **dict.fromkeys((*ARITHMETIC, "<", "<=", ">", ">=", "==", "!=", "and", "or"), 2),
    "neg": 1,
    "not": 1,
}
ALL = {**OPERATORS, **ELEMENTWISE}
MADE_OF_SEVERAL = {"and", "or", "not", "where", "^", "/", "clamp", "mod", "wrap"}
"""What emit/arithmetic.py spells out."""
POWER = {"^"}
"""Whose meaning depends on whether the exponent is a constant, so it is a function of its own."""
NAMES = ("a", "b", "c")
SPECIAL = (0.0, -0.0, 1.0, -1.0, 0.5, 2.5, -2.5, np.inf, -np.inf, np.nan, 1e30, 3.0)


def test_the_tables_agree() -> None:
    assert set(numbers.FUNCTIONS) == set(ALL)
    assert set(functions.ALGORITHM) == set(functions.CODEC) == set(ALL) - POWER
    assert set(PLAIN) | MADE_OF_SEVERAL == set(ALL)
    assert not set(PLAIN) & MADE_OF_SEVERAL


def of(function: str, *names: str) -> Apply:
    return Apply(function, tuple(map(Read, names[: ALL[function]])))


def values(real: Any) -> dict[str, Any]:
    """All pairs of special values, and then some; the third is never below the second."""
    a, b = (grid.ravel() for grid in np.meshgrid(SPECIAL, SPECIAL))
    drawn = np.random.default_rng(0).standard_normal((2, 600)) * 4
    a, b = np.concatenate([a, drawn[0]]).astype(real), np.concatenate([b, drawn[1]]).astype(real)
    with np.errstate(all="ignore"):
        return {"a": a, "b": b, "c": (b + np.abs(a)).astype(real)}


CODEC = Codec(
    "each function",
    Layout(64, tuple(Field(f"f{n}", WireType("real"), True) for n in range(len(ALL)))),
    tuple(
        Send(n, f"f{n}", Apply(f, (Read("x"), Apply("neg", (Read("x"),)), Apply("floor", (Read("x"),)))[:count]))
        for n, (f, count) in enumerate(ALL.items())
    ),
    Read("f0"),
    False,
)
"""Each function of x, -x and floor(x), so that a message has the results of all."""
CONTRIBUTE = ROUTES["all"].kernels("none")[0]


@pytest.fixture(scope="module")
def fused() -> dict[str, FusedFragment]:
    return {
        function: build_fragment(f"function_{n}", body(fragment, "a b c"), fragment, "f32")
        for n, function in enumerate(ALL)
        for fragment in [Fragment((), (Store("weight", of(function, *NAMES)),))]
    }


@pytest.fixture(scope="module")
def library(fused: dict[str, FusedFragment]) -> Any:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    coded = build_kernel("codec", CODEC, CONTRIBUTE, "f32")
    return ctypes.CDLL(str(build_kernels(emit_kernels([*(f.kernel for f in fused.values()), coded]))))


@pytest.mark.parametrize("function", ALL)
def test_a_kernel_of_an_algorithm(function: str, fused: dict[str, FusedFragment], library: Any) -> None:
    given = values(np.float32)
    kernel = fused[function].kernel
    held = {**given, "weight": np.zeros_like(given["a"])}
    operands = [held[o.name].copy() for o in kernel.operands]
    call(library[kernel.symbol], [Part(operands, given["a"].size)], numbers=[])
    found = operands[[o.name for o in kernel.operands].index("weight")]
    np.testing.assert_array_equal(found, meaning(of(function, *NAMES), given))


def meaning(e: Expression, given: dict[str, Any]) -> Any:
    return Evaluator(np.float32, {}, given).value(e)


def test_a_kernel_of_a_codec(library: Any) -> None:
    x = values(np.float32)["a"]
    segment = Segment(x, np.zeros_like(x), [], 0, 0)
    message, _, _ = measured(library["codec"], CODEC, CONTRIBUTE, "f32", [segment], 1)
    assert message == expected(CODEC, CONTRIBUTE, "f32", segment, 1)[0]
