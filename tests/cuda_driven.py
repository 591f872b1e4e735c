"""Any kernel on data drawn for it: the same call for the CPU's function and for the emulated CUDA one."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import kernel_calls
import numpy as np
from cuda_calls import Emulated, How, at_skew, call
from kernel_calls import Array, Part, to_bits

from relaxc.emit.cpu import emit_kernels
from relaxc.emit.cuda import Launch
from relaxc.emit.kernel import BlockKernel, Operand
from relaxc.resources import folder
from relaxc.wire.layout import Field

FLAGS = ("-std=c++17", "-O0", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-w")
WORKERS = 3
LENGTHS = (513, 0, 1, 511, 1031, 512, 0, 2)
LONG = 4099
"""For large blocks."""
KINDS = (
    "normal", "zeros", "nan", "inf", "both", "denormal", "normal", "huge", "ties", "constant", "near ties",
)  # fmt: skip
EDGES = (0, 1, 511, 512, 513, 1031)
"""Lengths at which a block of 512 begins and ends, none, one, and a prime."""
SPECIAL = ("normal", "nan", "inf", "denormal")


@dataclass
class Drawn:
    """What a kernel is given. `parts` hold the operands' values as memory has them."""

    parts: list[Part]
    messages: list[bytes]
    size: int | None
    weights: list[float] | None
    numbers: list[float]
    near: list[Array | None] | None


def values(kind: str, n: int, real: Any, rng: np.random.Generator) -> Array:
    x: Array = rng.standard_normal(n).astype(real)
    tie = np.array([s + 2.0**-b + 2.0**-40 for s in (1, 2, -1) for b in (8, 9, 11, 12)])
    with np.errstate(all="ignore"):
        x = {
            "zeros": np.copysign(real(0), x),
            "denormal": x * real(1e-41 if real is np.float32 else 1e-310),
            "huge": np.sign(x) * np.finfo(real).max,
            "ties": np.round(x),
            "near ties": np.resize(tie, n),
            "constant": np.full(n, 0.1),
        }.get(kind, x).astype(real)
    if kind == "normal":
        x[::5] = -0.0
    if kind in ("inf", "both"):
        x[n // 3 : n // 3 + 1] = np.inf
    if kind in ("nan", "both"):
        x[n // 2 : n // 2 + 1] = {"nan": np.nan, "both": -np.inf}[kind]
    return x


Lengths = Sequence[tuple[int, str]]
"""Of segments, with what kind of numbers each holds."""


def rotated(kernel: BlockKernel, seed: int) -> Lengths:
    lengths = _lengths(kernel, LENGTHS)
    count = len(lengths)
    return [(lengths[(at + seed) % count], KINDS[(at * 3 + seed) % len(KINDS)]) for at in range(count)]


def every(kernel: BlockKernel) -> Lengths:
    """Each length with each special kind."""
    return [(length, kind) for kind in SPECIAL for length in _lengths(kernel, EDGES)]


def _lengths(kernel: BlockKernel, lengths: tuple[int, ...]) -> tuple[int, ...]:
    return lengths if 0 < (kernel.block or 0) <= max(lengths) else (*lengths, LONG)


def drawn(kernel: BlockKernel, launch: Launch, seed: int, lengths: Lengths | None = None) -> Drawn:
    rng = np.random.default_rng(seed)
    real = kernel_calls.real_of(kernel.dtype)
    parts = []
    for place, (n, kind) in enumerate(lengths or rotated(kernel, seed)):
        held = [_memory(kernel, o, kind, n, rng) for o in kernel.operands]
        first = (place % 3) * (kernel.block or 0) + (2**32 // (kernel.block or 1) * (kernel.block or 0)) * (
            place % 4 == 1
        )
        parts.append(Part(held, n, first, place))
    senders = {"none": 0, "one": 1, "many": WORKERS}[kernel.inputs]
    kinds = [kind for _, kind in lengths] if lengths else [None] * len(parts)
    messages = [
        b"".join(_message(kernel, launch, p.elements, kind, rng) for p, kind in zip(parts, kinds, strict=True))
        for _ in range(senders)
    ]
    ops = [v.op for s in (kernel.main, kernel.gather) if s for v in s.values]
    total = sum(p.elements for p in parts)
    near = [None, *(rng.standard_normal(total).astype(real) for _ in range(WORKERS - 1))] if "near" in ops else None
    weights = [float(w) for w in rng.random(senders)] if "weight" in ops else None
    return Drawn(parts, messages, _size(kernel, launch, parts), weights, [float(x) for x in rng.random(16)], near)


def _memory(kernel: BlockKernel, operand: Operand, kind: str, n: int, rng: np.random.Generator) -> Array:
    """Cells and what is one for each block are kept from being negative."""
    real = kernel_calls.real_of(kernel.dtype)
    if operand.type in ("cell", "block"):
        count = 1 if operand.type == "cell" or kernel.block is None else -(-n // kernel.block)
        return np.abs(rng.standard_normal(count)).astype(real)
    made = values(kind if operand.type == "tensor" else KINDS[int(rng.integers(3)) * 3], n, real, rng)
    with np.errstate(all="ignore"):
        return to_bits(made, kernel.dtype) if operand.type == "tensor" else made


def _size(kernel: BlockKernel, launch: Launch, parts: list[Part]) -> int | None:
    if any(s.target == "trip" for s in kernel.main.stores):
        return sum(launch.blocks_of(p.elements) for p in parts)
    sends = any(s.target == "field" for s in kernel.main.stores)
    return sum(launch.bytes_of(p.elements) for p in parts) if sends else None


def _message(kernel: BlockKernel, launch: Launch, elements: int, kind: str | None, rng: np.random.Generator) -> bytes:
    block = kernel.block or max(elements, 1)
    real = kernel_calls.real_of(kernel.dtype)
    made = []
    for start in range(0, elements, block):
        n = min(block, elements - start)
        made += [_field(f, n if f.per_element else 1, real, kind, rng) for f in launch.fields]
    return b"".join(made)


def _field(field: Field, n: int, real: Any, holds: str | None, rng: np.random.Generator) -> bytes:
    """Any bytes for levels; numbers are of the kind `holds`, or now and then NaN or infinite."""
    kind = field.wire.kind
    if kind == "top":
        kept = field.wire.kept(n)
        places = np.sort(rng.choice(n, kept, replace=False)).astype("<u4")
        return places.tobytes() + rng.standard_normal(kept).astype(real).tobytes()
    if field.wire.bits:
        return rng.bytes(field.wire.bytes_of(n, real().itemsize))
    numbers = values(holds or ("normal", *SPECIAL)[int(rng.integers(5))], n, real, rng)
    with np.errstate(all="ignore"):
        return (
            to_bits(numbers, kind).tobytes()
            if kind in ("f16", "bf16")
            else numbers.astype(_float(kind, real)).tobytes()
        )


def _float(kind: str, real: Any) -> Any:
    return np.float32 if kind == "f32" else real


# --- both targets


def of_cpus(kernels: Sequence[BlockKernel], where: Path) -> dict[str, Any]:
    """The CPU's functions by symbol. Not as a plan compiles them: their bits are the same, and this takes a tenth of
    the time."""

    def half(number: int) -> dict[str, Any]:
        source, library = where / f"cpu_{number}.cpp", where / f"cpu_{number}.so"
        source.write_text(emit_kernels(kernels[number::2]))
        subprocess.run(
            ["g++", *FLAGS, f"-I{folder('runtime')}", str(source), "-o", str(library)], check=True, timeout=560
        )
        loaded = ctypes.CDLL(str(library))
        return {kernel.symbol: loaded[kernel.symbol] for kernel in kernels[number::2]}

    with ThreadPoolExecutor(2) as compilers:
        return {symbol: function for found in compilers.map(half, range(2)) for symbol, function in found.items()}


def of_cpu(function: Any, given: Drawn) -> tuple[bytes, list[Array]]:
    """The message and all operands after the call."""
    parts = [
        Part([kernel_calls.unaligned(o) for o in p.operands], p.elements, p.first, p.parameter) for p in given.parts
    ]
    near = None if given.near is None else [None if n is None else n.copy() for n in given.near]
    message = kernel_calls.call(
        function, parts, given.messages, given.size, WORKERS, given.weights, given.numbers, near
    )  # fmt: skip
    return message, [o for p in parts for o in p.operands]


def of_cuda(kernel: Emulated, given: Drawn, how: How) -> tuple[bytes, list[Array]]:
    parts = [Part([at_skew(o, how.skew) for o in p.operands], p.elements, p.first, p.parameter) for p in given.parts]
    near = None if given.near is None else [None if n is None else at_skew(n, how.skew) for n in given.near]
    message = call(kernel, parts, given.messages, given.size, WORKERS, given.weights, given.numbers, near, how)
    return message, [o for p in parts for o in p.operands]


def same(a: Array, b: Array) -> bool:
    """Bit for bit; in f32 and f64 any NaN being any other."""
    unsigned = np.dtype(f"u{a.itemsize}")
    equal = a.view(unsigned) == b.view(unsigned)
    return bool((equal | (np.isnan(a) & np.isnan(b)) if a.dtype.kind == "f" else equal).all())
