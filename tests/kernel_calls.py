"""Calling generated kernels through the C ABI, and what they must give, from the oracle."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxc.program import evaluate
from relaxc.program.ir import Codec
from relaxc.wire.dither import parameter_keys
from relaxc.wire.routes import Kernel

Array = NDArray[Any]
KEY = 0x0123456789ABCDEF


class CSegment(ctypes.Structure):
    _fields_ = [
        ("tensor", ctypes.c_void_p),
        ("residual", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("first", ctypes.c_uint64),
        ("parameter", ctypes.c_uint32),
    ]


class CCall(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("number_of_inputs", ctypes.c_int64),
        ("output", ctypes.c_void_p),
        ("workers", ctypes.c_int64),
        ("key", ctypes.c_uint64),
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


def expected(codec: Codec, kernel: Kernel, dtype: str, segment: Segment, workers: int) -> tuple[bytes, Array, Array]:
    """Message, tensor and residual after the kernel, by the docstring of routes.Kernel."""
    real = real_of(dtype)
    with np.errstate(all="ignore"):
        terms = [
            evaluate.decode(codec, evaluate.encode(codec, x), x.size, real) for x in segment.inputs
        ]  # contributions that dither are as good as any
        if kernel.tensor:
            terms.append(from_bits(segment.tensor, dtype))
        value = terms[0]
        for term in terms[1:]:
            value = value + term
        if kernel.averages:
            value = value * (real(1) / real(workers))
        if kernel.residual:
            value = value + segment.residual
        if kernel.decodes:
            return b"", to_bits(value, dtype), segment.residual
        message = evaluate.encode(codec, value, parameter_keys(KEY, segment.parameter), segment.first)
        lost = value - evaluate.decode(codec, message, value.size, real)
        kept = np.where(np.isfinite(lost), lost, segment.residual) if kernel.residual else segment.residual
    return message, segment.tensor, kept


def measured(
    function: Any, codec: Codec, kernel: Kernel, dtype: str, segments: list[Segment], workers: int
) -> tuple[bytes, list[Array], list[Array]]:
    """The same from the generated function, in one call. Nothing starts at an address of more than its own alignment,
    messages not even that."""
    tensors = [_unaligned(s.tensor) for s in segments]
    residuals = [_unaligned(s.residual) for s in segments]
    size = sum(codec.layout.bytes_of(s.tensor.size, real_of(dtype)().itemsize) for s in segments)
    inputs = [
        _unaligned(np.frombuffer(b"".join(evaluate.encode(codec, s.inputs[k]) for s in segments), np.uint8))
        for k in range(len(segments[0].inputs))
    ]
    output = np.full(size + 64, 0xAB, np.uint8)
    given = (CSegment * len(segments))(
        *(
            CSegment(t.ctypes.data, r.ctypes.data, t.size, s.first, s.parameter)
            for s, t, r in zip(segments, tensors, residuals, strict=True)
        )
    )
    addresses = (ctypes.c_void_p * max(1, len(inputs)))(*(i.ctypes.data for i in inputs))
    at = None if kernel.decodes else output.ctypes.data + 3
    call = CCall(ctypes.addressof(addresses), len(inputs), at, workers, KEY)
    function(given, ctypes.c_int64(len(segments)), ctypes.byref(call))
    assert (output[:3] == 0xAB).all() and (output[size + 3 :] == 0xAB).all(), "wrote outside its message"
    return (b"" if kernel.decodes else output[3 : size + 3].tobytes()), tensors, residuals


def _unaligned(values: Array) -> Array:
    """A copy that starts one item after an aligned address."""
    room = np.empty(values.size + 1, values.dtype)
    room[1:] = values
    return room[1:]
