"""Generated CUDA kernels on the CPU: compiled under emulation.h, called through their ABI. The counterpart of
kernel_calls.py."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from kernel_calls import KEY, OWN, SHARED, Array, CCall, CSegment, Part

from relaxc.emit.cuda import Launch, emit_cuda
from relaxc.emit.kernel import BlockKernel
from relaxc.resources import folder

EMULATION = Path(__file__).resolve().parent / "cuda" / "emulation.h"
FLAGS = (
    "-std=c++17",
    "-Og",  # most of the time goes into compiling
    "-DRELAXRT_INLINE=static",
    "-DRELAXRT_SHARED=static",
    "-ffp-contract=off",
    "-fno-strict-aliasing",
    "-fno-math-errno",
    "-fPIC",
    "-shared",
    "-w",
)
FORWARD, BACKWARD, SHUFFLED = range(3)
GUARD = 64


class CudaSegment(ctypes.Structure):
    _fields_ = [
        *CSegment._fields_,
        ("block", ctypes.c_int64),
        ("at", ctypes.c_int64),
        ("before", ctypes.c_int64),
    ]


class CudaCall(ctypes.Structure):
    _fields_ = [
        ("segments", ctypes.c_void_p),
        ("number_of_segments", ctypes.c_int64),
        ("blocks", ctypes.c_int64),
        *CCall._fields_,
        ("scratch", ctypes.c_void_p),
        ("scratch_bytes", ctypes.c_int64),
    ]


class EmulationError(AssertionError):
    """What the emulation found wrong."""


@dataclass(frozen=True)
class How:
    """The grid, the order of threads, how far from aligned addresses arrays (in items) and messages (in thrice as many
    bytes) are, and how many blocks each segment has before those that are worked on, with addresses to match."""

    grid: int = 3
    order: int = FORWARD
    skew: int = 1
    seed: int = 1
    far: int = 0


def compiled(source: str, path: Path) -> Any:
    """The library of a .cu text."""
    text = path.with_suffix(".cu")
    text.write_text(source)
    include = f"-I{folder('runtime')}"
    command = ["g++", *FLAGS, include, "-include", str(EMULATION), "-x", "c++", str(text), "-o", str(path)]
    made = subprocess.run(command, capture_output=True, text=True, timeout=560, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    return ctypes.CDLL(str(path))


@dataclass(frozen=True)
class Emulated:
    """A kernel and the library that it is in."""

    library: Any
    launch: Launch

    def run(self, call: CudaCall, how: How) -> None:
        message = ctypes.create_string_buffer(4096)
        wrong = self.library.relaxrt_emulate(
            self.library[self.launch.symbol], how.grid, self.launch.threads, ctypes.byref(call), how.order,
            ctypes.c_uint(how.seed), message, ctypes.c_int64(len(message)),
        )  # fmt: skip
        if wrong:
            raise EmulationError(f"{self.launch.symbol}: {message.value.decode()}")


def emulated(kernels: Sequence[BlockKernel], folder: Path, compilers: int = 2) -> dict[str, Emulated]:
    """By symbol; compiled by so many compilers at once."""

    def chunk(number: int) -> dict[str, Emulated]:
        source, launches = emit_cuda(kernels[number::compilers])
        library = compiled(source, folder / f"emulated_{number}.so")
        return {launch.symbol: Emulated(library, launch) for launch in launches}

    with ThreadPoolExecutor(compilers) as pool:
        return {symbol: one for found in pool.map(chunk, range(compilers)) for symbol, one in found.items()}


def at_skew(values: Array, items: int) -> Array:
    """A copy that starts so many items behind an address that is aligned to 64 bytes."""
    room = np.empty(values.size + items + 64, values.dtype)
    first = -room.ctypes.data % 64 // values.itemsize + items
    made = room[first : first + values.size]
    made[:] = values
    return made


def call(
    kernel: Emulated,
    parts: list[Part],
    messages: list[bytes] | None = None,
    size: int | None = None,
    workers: int = 1,
    weights: list[float] | None = None,
    numbers: list[float] | None = None,
    near: list[Array | None] | None = None,
    how: How = How(),
) -> bytes:
    """As kernel_calls.call; the arrays of `parts` are where they are."""
    launch, off = kernel.launch, 3 * how.skew
    inputs = [at_skew(np.frombuffer(m, np.uint8), off) for m in messages or []]
    room = at_skew(np.full((size or 0) + 2 * GUARD, 0xAB, np.uint8), off)
    output = room[GUARD:]
    segments, blocks, keep = _segments(launch, parts, how.far)
    away = launch.bytes_of(how.far * launch.per_block) if launch.per_block else 0
    sources = (ctypes.c_void_p * max(1, len(inputs)))(*(i.ctypes.data - away for i in inputs))
    nears = (ctypes.c_void_p * max(1, len(near or [])))(*(None if n is None else n.ctypes.data for n in near or []))
    largest = launch.per_block or max((p.elements for p in parts), default=0)
    each = launch.scratch_bytes(largest)
    scratch = at_skew(np.full(each * how.grid + GUARD, 0xFF, np.uint8), 0)
    given = CudaCall(
        ctypes.addressof(segments), len(parts), blocks, ctypes.addressof(sources), _doubles(weights, keep), len(inputs),
        None if size is None else output.ctypes.data - away, _doubles(numbers, keep), workers, KEY,
        ctypes.addressof(nears) if near else None, SHARED, OWN, scratch.ctypes.data if each else None, each,
    )  # fmt: skip
    kernel.run(given, how)
    assert (room[:GUARD] == 0xAB).all() and (output[size or 0 :] == 0xAB).all(), "wrote outside its message"
    assert (scratch[each * how.grid :] == 0xFF).all(), "wrote behind its scratch"
    return output[: size or 0].tobytes()


def _segments(launch: Launch, parts: list[Part], far: int) -> tuple[Any, int, list[Any]]:
    """The table, the number of codec blocks, and what has to live as long."""
    skipped = far * (launch.per_block or 0)
    keep: list[Any] = [
        (ctypes.c_void_p * max(1, len(part.operands)))(*(o.ctypes.data - skipped * o.itemsize for o in part.operands))
        for part in parts
    ]
    rows, blocks = rows_of(launch, parts, [ctypes.addressof(operands) for operands in keep], far)
    return (CudaSegment * max(1, len(rows)))(*rows), blocks, keep


def rows_of(
    launch: Launch, parts: Sequence[Part], tables: Sequence[int], far: int = 0
) -> tuple[list[CudaSegment], int]:
    """The segments, whose operands' addresses stand at `tables`, and the number of codec blocks."""
    skipped = far * (launch.per_block or 0)
    rows, block, at, before = [], 0, 0, 0
    for part, table in zip(parts, tables, strict=True):
        elements = part.elements + skipped
        rows.append(CudaSegment(table, elements, part.first, part.parameter, block - far, at, before))
        block += launch.blocks_of(part.elements)
        at += launch.bytes_of(part.elements)
        before += part.elements
    return rows, block


def _doubles(numbers: list[float] | None, keep: list[Any]) -> Any:
    if numbers is None:
        return None
    keep.append((ctypes.c_double * max(1, len(numbers)))(*numbers))
    return ctypes.addressof(keep[-1])
