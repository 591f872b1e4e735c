"""Fragments drawn at random against the algebra of algorithms (program/arithmetic.py), which shares no code with emit/."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest
from fragment_cases import body
from kernel_calls import Array, Part, call, from_bits, real_of, to_bits

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fragment import FusedFragment, build_fragment
from relaxc.program.arithmetic import Evaluator, settled
from relaxc.program.ir import Apply, Constant, Expression, Let, Read, Reduce
from relaxc.program.paths import Fragment, PathBody, Store
from relaxc.wire.numbers import evaluate as number

COUNT, DEPTH, ELEMENTS = 60, 4, 517
NUMBERS = {"lr": 0.1, "t": 7.0, "workers": 3.0, "rate.now": -0.25}
STATES = ("a", "b")
CELL = "size"
TWO = ("+", "-", "*", "/", "min", "max", "mod", "wrap", "<", "<=", ">", ">=", "==", "!=", "and", "or")
ONE = ("neg", "sqrt", "abs", "sign", "round", "floor", "not")


def _expression(rng: np.random.Generator, depth: int, lets: list[str]) -> Expression:
    if depth == 0 or rng.random() < 0.15:
        return _leaf(rng, lets)

    def inner() -> Expression:
        return _expression(rng, depth - 1, lets)

    kind = rng.random()
    if kind < 0.6:
        return Apply(str(rng.choice(TWO)), (inner(), inner()))
    if kind < 0.8:
        return Apply(str(rng.choice(ONE)), (inner(),))
    if kind < 0.9:
        return Apply(str(rng.choice(["where", "clamp"])), (inner(), inner(), inner()))
    return Apply("^", (inner(), Constant(float(rng.integers(-3, 4)))))


def _leaf(rng: np.random.Generator, lets: list[str]) -> Expression:
    kind = rng.random()
    if kind < 0.15:
        return Constant(float(rng.choice([0.0, 0.5, 1.0, 3.0, -2.0, 0.1])))
    if kind < 0.35:
        return Read(str(rng.choice(list(NUMBERS))))
    if kind < 0.4:
        return Read(CELL)
    return Read(str(rng.choice(["weight", "grad", *STATES, "kept.0", *lets])))


def drawn(seed: int) -> tuple[PathBody, Fragment]:
    rng = np.random.default_rng(seed)
    lets: list[Let] = []
    for n in range(3):
        lets.append(Let(f"let.{n}", _expression(rng, DEPTH - 1, [let.name for let in lets])))
    names = [let.name for let in lets]
    targets = ("weight", "grad", *STATES, "kept.0")
    fragment = Fragment(tuple(lets), tuple(Store(t, _expression(rng, DEPTH, names)) for t in targets))
    if seed % 10 == 0:
        norm = Reduce("norm", Apply("-", (_expression(rng, DEPTH, names), Read("grad"))))
        fragment = Fragment(tuple(lets), (*fragment.stores, Store(CELL, norm)))
    return body(fragment, " ".join(STATES), CELL, kept=1), fragment


DTYPES = ("f32", "f16", "bf16", "f64")


@pytest.fixture(scope="module")
def fused() -> list[FusedFragment]:
    return [build_fragment(f"drawn_{n}", *drawn(n), DTYPES[n % 4]) for n in range(COUNT)]


@pytest.fixture(scope="module")
def library(fused: list[FusedFragment]) -> Any:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    return ctypes.CDLL(str(build_kernels(emit_kernels([f.kernel for f in fused]))))


@pytest.mark.parametrize("seed", range(COUNT))
def test_drawn_fragment(seed: int, fused: list[FusedFragment], library: Any) -> None:
    (_, fragment), dtype, rng = drawn(seed), DTYPES[seed % 4], np.random.default_rng(seed)
    real = real_of(dtype)
    types = {o.name: o.type for o in fused[seed].kernel.operands}
    held = {name: _held(type, dtype, rng) for name, type in types.items()}
    before = {name: from_bits(x, dtype).copy() if types[name] == "tensor" else x.copy() for name, x in held.items()}
    wanted = _meaning(fragment, real, before)
    numbers = [number(e, NUMBERS) for e in fused[seed].numbers]
    call(library[f"drawn_{seed}"], [Part(list(held.values()), ELEMENTS)], numbers=numbers)
    for name, type in types.items():
        after = np.broadcast_to(wanted.get(name, before[name]), before[name].shape).astype(real)
        if name in (*STATES, CELL):
            after = settled(before[name], after)
        if type == "tensor":
            same = np.array_equal(held[name], to_bits(after, dtype)) or np.array_equal(
                from_bits(held[name], dtype), from_bits(to_bits(after, dtype), dtype), equal_nan=True
            )
        else:
            same = np.array_equal(held[name], after, equal_nan=True)
        assert same, name


def _held(type: str, dtype: str, rng: np.random.Generator) -> Array:
    real = real_of(dtype)
    if type == "cell":
        return rng.standard_normal(1).astype(real)
    x = np.round(rng.standard_normal(ELEMENTS) * 4) / 4  # so that numbers meet, and zeros occur
    return to_bits(x.astype(real), dtype) if type == "tensor" else x.astype(real)


def _meaning(fragment: Fragment, real: Any, before: dict[str, Array]) -> dict[str, Any]:
    tensors = {name: x.reshape(()) if name == CELL else x for name, x in before.items()}
    numbers = dict(NUMBERS)
    for let in fragment.lets:
        try:
            value = Evaluator(real, numbers, tensors).value(let.value)
        except KeyError:  # a let that reads what no store needs
            continue
        if isinstance(value, float):
            numbers[let.name] = value
        else:
            tensors[let.name] = value
    return {s.target: Evaluator(real, numbers, tensors).value(s.value) for s in fragment.stores}
