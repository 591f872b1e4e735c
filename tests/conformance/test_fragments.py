"""Generated kernels of fragments against numpy: the same bytes, the same bits in memory."""

from __future__ import annotations

import ctypes
import shutil
from typing import Any

import numpy as np
import pytest
from fragment_cases import CASES, WEIGHTS, WORKERS, Case, Outcome, World
from kernel_calls import Array, Part, call, from_bits, real_of, to_bits, unaligned

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fragment import FusedFragment, build_fragment
from relaxc.emit.kernel import Operand
from relaxc.program import evaluate
from relaxc.wire.numbers import evaluate as number

DTYPES = ("f32", "f16", "bf16", "f64")
LENGTHS = (513, 0, 1, 511, 512, 1511, 4099)
KINDS = ("normal", "nan", "inf", "zeros", "huge", "normal", "normal")
GRID = [(case, dtype) for case in CASES for dtype in DTYPES]


@pytest.fixture(scope="session")
def fused() -> list[FusedFragment]:
    return [build_fragment(f"fragment_{n}", case.body, case.fragment, dtype) for n, (case, dtype) in enumerate(GRID)]


@pytest.fixture(scope="session")
def library(fused: list[FusedFragment]) -> Any:
    if shutil.which("g++") is None:
        pytest.skip("no g++ on this machine")
    return ctypes.CDLL(str(build_kernels(emit_kernels([f.kernel for f in fused]))))


def _data(kind: str, n: int, real: Any, rng: np.random.Generator) -> Array:
    x: Array = rng.standard_normal(n).astype(real)
    if kind == "zeros":
        return np.copysign(real(0), x)
    if kind == "huge":
        return np.sign(x) * np.finfo(real).max
    x[n // 2 : n // 2 + 1] = {"nan": np.nan, "inf": -np.inf}.get(kind, -0.0)
    return x


def _memory(operand: Operand, kind: str, n: int, dtype: str, rng: np.random.Generator) -> Array:
    """As the kernel finds it. What only finite values are ever written to has no others."""
    real = real_of(dtype)
    if operand.type == "cell":
        return np.abs(rng.standard_normal(1)).astype(real)
    kept = operand.name not in ("weight", "grad")
    with np.errstate(all="ignore"):
        values = _data("normal" if kept and kind != "zeros" else kind, n, real, rng)
        if operand.name == "v":
            values = np.abs(values)
        return to_bits(values, dtype) if operand.type == "tensor" else values


@pytest.mark.parametrize("number_of_case", range(len(GRID)), ids=[f"{c.name}-{d}" for c, d in GRID])
def test_fragment_is_what_it_says(number_of_case: int, fused: list[FusedFragment], library: Any) -> None:
    case, dtype = GRID[number_of_case]
    made = fused[number_of_case]
    rng = np.random.default_rng(number_of_case)
    codec = case.transfer.exchange.codec if case.transfer else None
    parts, worlds = [], []
    for place, (n, kind) in enumerate(zip(LENGTHS, KINDS, strict=True)):
        first = 0 if codec is None or codec.layout.unit == "tensor" else place * codec.layout.block
        held = [unaligned(_memory(o, kind, n, dtype, rng)) for o in made.kernel.operands]
        parts.append(Part(held, n, first, place))
        worlds.append(_world(case, made, dtype, parts[-1], kind, rng))
    with np.errstate(all="ignore"):
        wanted = [case.meaning(w) for w in worlds]
    message = _run(library[f"fragment_{number_of_case}"], case, made, dtype, parts, worlds)
    assert message == b"".join(w.message for w in wanted)
    for part, world, outcome in zip(parts, worlds, wanted, strict=True):
        _compare(case, made, dtype, part, world, outcome)


def _world(case: Case, made: FusedFragment, dtype: str, part: Part, kind: str, rng: np.random.Generator) -> World:
    memory = {
        o.name: (from_bits(held, dtype) if o.type == "tensor" else held).copy()
        for o, held in zip(made.kernel.operands, part.operands, strict=True)
    }
    senders = {"none": 0, "one": 1, "many": WORKERS}[made.kernel.inputs]
    inputs = [_data(kind if k == 1 else "normal", part.elements, real_of(dtype), rng) for k in range(senders)]
    codec = case.transfer.exchange.codec if case.transfer else None
    return World(memory, case.numbers, inputs, codec, dtype, part.first, part.parameter)


def _run(function: Any, case: Case, made: FusedFragment, dtype: str, parts: list[Part], worlds: list[World]) -> bytes:
    transfer = case.transfer
    codec = transfer.exchange.codec if transfer else None
    size = None
    if codec is not None and case.fragment.sends is not None:
        size = sum(codec.layout.bytes_of(p.elements, real_of(dtype)().itemsize) for p in parts)
    messages = []
    for k in range(len(worlds[0].inputs)):
        assert codec is not None
        messages.append(b"".join(evaluate.encode(codec, w.inputs[k], first=w.first, shared=w.shared) for w in worlds))
    weights = list(WEIGHTS) if transfer and transfer.exchange.kind == "mix" and messages else None
    numbers = [number(e, case.numbers) for e in made.numbers]
    return call(function, parts, messages, size, WORKERS, weights, numbers)


def _compare(case: Case, made: FusedFragment, dtype: str, part: Part, world: World, outcome: Outcome) -> None:
    """What was not stored is as it was; a state that would not be finite is, too."""
    states = {s.name for s in case.body.states}
    for operand, held in zip(made.kernel.operands, part.operands, strict=True):
        before = world.memory[operand.name]
        after = outcome.stores.get(operand.name, before).astype(before.dtype)
        if operand.name in states:
            after = np.where(np.isfinite(after), after, before)
        found = held
        if operand.type == "tensor":
            found, after = from_bits(held, dtype), from_bits(to_bits(after, dtype), dtype)
        assert _same(found, after, 4 if case.libm and dtype == "f64" else 0), operand.name


def _same(a: Array, b: Array, ulps: int) -> bool:
    """Bit for bit, any NaN being any other; or that many units of the last place apart."""
    with np.errstate(all="ignore"):
        equal = (a == b) & (np.signbit(a) == np.signbit(b)) | (np.isnan(a) & np.isnan(b))
        near = np.abs(a - b) <= ulps * np.spacing(np.abs(b)) if ulps else equal
    return bool((equal | near).all())


def test_a_state_never_becomes_non_finite(fused: list[FusedFragment], library: Any) -> None:
    case, dtype = CASES[0], "f32"
    made = fused[0]
    held = {o.name: np.ones(64, np.float32) for o in made.kernel.operands}
    held["grad"][:3] = (np.nan, np.inf, -1e30)
    numbers = [number(e, case.numbers) for e in made.numbers]
    call(library["fragment_0"], [Part([held[o.name] for o in made.kernel.operands], 64)], numbers=numbers)
    assert dtype == made.kernel.dtype
    assert (held["m"][:2] == 1).all() and (held["v"][:3] == 1).all() and (held["m"][2] < -1e28)
