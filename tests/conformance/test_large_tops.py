"""topk of tensors so large that a few elements are counted first: what they promise, true or not, never changes what is
chosen."""

from __future__ import annotations

import ctypes
from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest
from kernel_calls import Segment, expected, measured, to_bits

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.wire.routes import Kernel

ENCODE = Kernel("encode", "none", tensor=True, averages=False, residual=False, owner=False)
KEEP = Kernel("keep", "none", tensor=True, averages=False, residual=True, owner=False)
STRIDE, ELEMENTS = 61, 20_011
"""relaxrt/top.h counts every STRIDE-th of 2**14 and more."""
CASES = [(codecs.topk(0.01), "f32", ENCODE), (codecs.topk(300), "f32", KEEP), (codecs.topk(0.2), "f64", ENCODE),
         (codecs.topk(0.01), "f16", ENCODE), (codecs.topk(0.01), "bf16", ENCODE)]  # fmt: skip


def counted_are_large(x: np.ndarray) -> None:
    """So the counted promise more than there is."""
    x[::STRIDE] *= 1e3


def counted_are_small(x: np.ndarray) -> None:
    x[::STRIDE] *= 1e-3


def equal(x: np.ndarray) -> None:
    x[:] = 0.25


def with_nan(x: np.ndarray) -> None:
    x[7000:7100] = np.nan


def in_one_place(x: np.ndarray) -> None:
    x[-500:] *= 1e3


@pytest.fixture(scope="module")
def library() -> Any:
    source = emit_kernels(
        [build_kernel(f"top_{n}", codec, kernel, dtype) for n, (codec, dtype, kernel) in enumerate(CASES)]
    )
    return ctypes.CDLL(str(build_kernels(source)))


@pytest.mark.parametrize("change", [np.negative, counted_are_large, counted_are_small, equal, with_nan, in_one_place])
@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_is_chosen_does_not_depend_on_what_was_counted(number: int, change: Any, library: Any) -> None:
    codec, dtype, kernel = CASES[number]
    draw = np.random.default_rng(number)
    real = np.float64 if dtype == "f64" else np.float32
    values = draw.standard_normal(ELEMENTS).astype(real)
    change(values)
    segment = Segment(
        to_bits(values, dtype), draw.standard_normal(ELEMENTS).astype(real) * real(1e-2), [], 0, parameter=0
    )
    wanted = expected(codec, kernel, dtype, segment, 1, None)
    message, _, (residual,) = measured(library[f"top_{number}"], codec, kernel, dtype, [segment], 1, None)
    assert message == wanted[0]
    np.testing.assert_array_equal(residual, wanted[2])
