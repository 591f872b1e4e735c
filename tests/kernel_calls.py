"""Calling generated kernels through the C ABI, and what they must give, from the oracle."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxc.emit.fuse import build_kernel
from relaxc.program import evaluate
from relaxc.program.ir import Codec
from relaxc.wire.dither import parameter_keys
from relaxc.wire.routes import Kernel

Array = NDArray[Any]
KEY, SHARED = 0x0123456789ABCDEF, 0x0F1E2D3C4B5A6978
OWN = 0
"""Which of the messages is the own one, where a kernel asks."""
END = 2**63 - 1
WHOLE = ((0, END),)
"""The range of a run that does all blocks."""


class CSegment(ctypes.Structure):
    _fields_ = [
        ("operands", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("first", ctypes.c_uint64),
        ("parameter", ctypes.c_uint32),
    ]


class CCall(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("number_of_inputs", ctypes.c_int64),
        ("output", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("workers", ctypes.c_int64),
        ("key", ctypes.c_uint64),
        ("near", ctypes.c_void_p),
        ("shared", ctypes.c_uint64),
        ("own", ctypes.c_int64),
    ]


@dataclass
class Segment:
    """`tensor` holds the tensor's own bits (uint16 for f16 and bf16); `inputs` the values whose codes are received."""

    tensor: Array
    residual: Array
    inputs: list[Array]
    first: int
    parameter: int


def real_of(dtype: str) -> Any:
    return np.float64 if dtype == "f64" else np.float32


def to_bits(value: Array, dtype: str) -> Array:
    """What a tensor of `dtype` holds after `value` is written to it."""
    rounded = evaluate.round_to(value, dtype)
    with np.errstate(all="ignore"):
        match dtype:
            case "f16":
                return np.where(np.isnan(rounded), np.float16(np.nan), rounded.astype(np.float16)).view(np.uint16)
            case "bf16":
                rounded = np.where(np.isnan(rounded), np.float32(np.nan), rounded)
                return (rounded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return rounded


def from_bits(bits: Array, dtype: str) -> Array:
    match dtype:
        case "f16":
            return bits.view(np.float16).astype(np.float32)
        case "bf16":
            return (bits.astype(np.uint32) << 16).view(np.float32)
    return bits


def expected(
    codec: Codec, kernel: Kernel, dtype: str, segment: Segment, workers: int, weights: list[float] | None = None
) -> tuple[bytes, Array, Array]:
    """Message, tensor and residual after the kernel, by the docstring of routes.Kernel."""
    real, held = real_of(dtype), from_bits(segment.tensor, dtype)
    drawn = {"first": segment.first, "shared": parameter_keys(SHARED, segment.parameter)}
    with np.errstate(all="ignore"):
        terms = [
            evaluate.decode(codec, evaluate.encode(codec, x, **drawn), x.size, real, held, **drawn)
            for x in segment.inputs
        ]  # contributions that dither are as good as any
        if kernel.weighted:
            terms = [term * real(weight) for term, weight in zip(terms, weights or [], strict=True)]
        if kernel.tensor:
            terms.append(held)
        value = terms[0]
        for term in terms[1:]:
            value = value + term
        if kernel.averages:
            value = value * (real(1) / real(workers))
        if kernel.residual:
            value = value + segment.residual
        if kernel.decodes:
            return b"", to_bits(value, dtype), segment.residual
        message = evaluate.encode(codec, value, parameter_keys(KEY, segment.parameter), **drawn)
        lost = value - evaluate.decode(codec, message, value.size, real, value, **drawn)
        kept = np.where(np.isfinite(lost), lost, segment.residual) if kernel.residual else segment.residual
    put = to_bits(value, dtype) if codec.near is not None and kernel.residual else segment.tensor
    return message, put, kept


def measured(
    function: Any,
    codec: Codec,
    kernel: Kernel,
    dtype: str,
    segments: list[Segment],
    workers: int,
    weights: list[float] | None = None,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> tuple[bytes, list[Array], list[Array]]:
    """The same from the generated function, in one call."""
    operands = build_kernel("k", codec, kernel, dtype).operands
    tensors = [unaligned(s.tensor) for s in segments]
    residuals = [unaligned(s.residual) for s in segments]
    held = [{"value": t, "residual": r} for t, r in zip(tensors, residuals, strict=True)]
    messages = [b"".join(_sent(codec, s, k) for s in segments) for k in range(len(segments[0].inputs))]
    parts = [
        Part([of[o.name] for o in operands], s.tensor.size, s.first, s.parameter)
        for s, of in zip(segments, held, strict=True)
    ]
    size = sum(codec.layout.bytes_of(s.tensor.size, real_of(dtype)().itemsize) for s in segments)
    sent = None if kernel.decodes else size
    message = call(function, parts, messages, sent, workers, weights=weights, ranges=ranges)
    return message, tensors, residuals


def _sent(codec: Codec, segment: Segment, number: int) -> bytes:
    shared = parameter_keys(SHARED, segment.parameter)
    return evaluate.encode(codec, segment.inputs[number], first=segment.first, shared=shared)


@dataclass
class Part:
    """A segment: its operands' arrays, which the kernel writes to."""

    operands: list[Array]
    elements: int
    first: int = 0
    parameter: int = 0


def call(
    function: Any,
    parts: list[Part],
    messages: list[bytes] | None = None,
    size: int | None = None,
    workers: int = 1,
    weights: list[float] | None = None,
    numbers: list[float] | None = None,
    near: list[Array | None] | None = None,
    ranges: Sequence[tuple[int, int]] | None = None,
) -> bytes:
    """Run a kernel once; the message that it makes, of `size` bytes, if it makes one. Messages start at odd addresses.

    The blocks are shared out by `ranges` of elements, by default three whose last comes first, as threads might.
    """
    inputs = [unaligned(np.frombuffer(m, np.uint8)) for m in messages or []]
    output = np.full((size or 0) + 64, 0xAB, np.uint8)
    addresses = [(ctypes.c_void_p * max(1, len(p.operands)))(*(o.ctypes.data for o in p.operands)) for p in parts]
    segments = (CSegment * len(parts))(
        *(
            CSegment(ctypes.addressof(a), p.elements, p.first, p.parameter)
            for a, p in zip(addresses, parts, strict=True)
        )
    )
    sources = (ctypes.c_void_p * max(1, len(inputs)))(*(i.ctypes.data for i in inputs))
    nears = [None if n is None else n.ctypes.data for n in near or []]
    pointers = (ctypes.c_void_p * max(1, len(nears)))(*nears)
    given = CCall(
        ctypes.addressof(sources), _doubles(weights), len(inputs), None if size is None else output.ctypes.data + 3,
        _doubles(numbers), workers, KEY, ctypes.addressof(pointers) if near else None, SHARED, OWN,
    )  # fmt: skip
    for begin, end in thirds(sum(p.elements for p in parts)) if ranges is None else ranges:
        function(segments, ctypes.c_int64(len(parts)), ctypes.byref(given), ctypes.c_int64(begin), ctypes.c_int64(end))
    end = (size or 0) + 3
    assert (output[:3] == 0xAB).all() and (output[end:] == 0xAB).all(), "wrote outside its message"
    return output[3:end].tobytes()


def thirds(elements: int) -> list[tuple[int, int]]:
    borders = [0, elements // 3, 2 * elements // 3, END]
    return list(pairwise(borders))[::-1]


def _doubles(numbers: list[float] | None) -> Any:
    return None if numbers is None else ctypes.cast((ctypes.c_double * max(1, len(numbers)))(*numbers), ctypes.c_void_p)


def unaligned(values: Array) -> Array:
    """A copy that starts one item after an aligned address."""
    room = np.empty(values.size + 1, values.dtype)
    room[1:] = values
    return room[1:]
