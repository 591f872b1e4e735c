"""A codec's guard: what a receiver decodes wrongly does not pass, what it decodes rightly does, and what does not pass is
decoded next to what its sender put in."""

from __future__ import annotations

from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.program.evaluate import decode, encode, nearest, trusted
from relaxc.program.ir import Codec
from relaxc.wire.layout import Layout

Array = np.ndarray[Any, Any]
UNIT, BLOCK = 0.001, 512
MODULO = codecs.guarded(8, UNIT, BLOCK)
RANGE = 127 * UNIT


def drawn(seed: int, elements: int = 3 * BLOCK + 77, dtype: Any = np.float32) -> tuple[Array, Array]:
    """Two workers' values, within the range of each other."""
    draw = np.random.default_rng(seed)
    x = draw.standard_normal(elements)
    return x.astype(dtype), (x + draw.uniform(-0.98, 0.98, elements) * RANGE).astype(dtype)


def wrong(codec: Codec, message: bytes, x: Array, y: Array) -> Array:
    """By block."""
    off = np.abs(decode(codec, message, x.size, x.dtype, y) - x) > 2 * UNIT
    return np.logical_or.reduceat(off, np.arange(0, x.size, codec.layout.block_of(x.size)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_what_is_near_passes(bits: int, dtype: Any) -> None:
    codec, reach = codecs.guarded(bits, UNIT), (2 ** (bits - 1) - 1) * UNIT
    for seed in range(20):
        x, _ = drawn(seed, dtype=dtype)
        y = (x + np.random.default_rng(seed).uniform(-0.98, 0.98, x.size) * reach).astype(dtype)
        message = encode(codec, x, (seed, 2))
        assert trusted(codec, message, y).all()
        assert np.abs(decode(codec, message, x.size, dtype, y) - x).max() <= UNIT * 1.01


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    seed=st.integers(0, 2**32), size=st.integers(1, 3 * BLOCK), far=st.integers(1, 600),
    apart=st.sampled_from([0.13, 0.256, 0.3, 1.0, 7.7, 65.536, 1e3, 1e9, 1e30]), same=st.booleans(),
)  # fmt: skip
def test_what_is_decoded_wrongly_does_not_pass(seed: int, size: int, far: int, apart: float, same: bool) -> None:
    """One element or many, a little too far or beyond all bounds, all the same way or either."""
    draw = np.random.default_rng(seed)
    x, y = (v[:size].copy() for v in drawn(seed))
    at = draw.choice(size, min(far, size), replace=False)
    y[at] += np.float32(apart) * (1 if same else draw.choice([-1, 1], at.size)) * draw.uniform(1, 2, at.size)
    message = encode(MODULO, x, (1, seed & 0xFFFF))
    bad, held = wrong(MODULO, message, x, y), trusted(MODULO, message, y)
    assert not (bad & held).any()
    found = decode(MODULO, message, size, x.dtype, nearest(MODULO, message, y, x))
    assert np.abs(found - x).max() <= UNIT * 1.01


@pytest.mark.parametrize("errors", [1, 2, 3, 6, 50])
@pytest.mark.parametrize("still", [False, True])
def test_about_one_in_two_to_the_fifteen_passes(errors: int, still: bool) -> None:
    """Turns of -1 and 0, as small weights have, one turn wrong in a few elements; `still`: all weights are equal, so that
    their residues are."""
    draw, rounds, block = np.random.default_rng(errors), 20000, 16 if errors < 16 else 64
    codec = codecs.guarded(8, UNIT, block)
    x = np.full(rounds * block, 0.01, np.float32)
    if not still:
        x = draw.uniform(-0.2, 0.2, rounds * block).astype(np.float32)
    y = x.reshape(rounds, block).copy()
    at = np.argsort(draw.random((rounds, block)), axis=1)[:, :errors]
    moved = np.take_along_axis(y, at, 1) + draw.choice([-1, 1], at.shape) * 256 * UNIT
    np.put_along_axis(y, at, moved.astype(np.float32), 1)
    assert trusted(codec, encode(codec, x, (1, 2)), y.ravel()).sum() <= 6


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e12, -1e30])
def test_what_has_no_exact_sum_is_sent_again(value: float) -> None:
    """Also where both have it: f32 can't tell such turns apart."""
    x, y = drawn(1)
    x[BLOCK + 5] = value
    for near in (x, y):
        message = encode(MODULO, x, (1, 2))
        assert list(trusted(MODULO, message, near)) == [True, False, True, True]
        found = decode(MODULO, message, x.size, x.dtype, nearest(MODULO, message, near, x))
        np.testing.assert_allclose(found[BLOCK + 5], x[BLOCK + 5], rtol=1e-6)
        assert np.isfinite(np.delete(found, BLOCK + 5)).all()


def test_a_receiver_that_is_not_finite_asks_for_everything() -> None:
    x, y = drawn(2)
    y[3] = np.nan
    message = encode(MODULO, x, (1, 2))
    assert list(trusted(MODULO, message, y)) == [False, True, True, True]
    assert np.isfinite(decode(MODULO, message, x.size, x.dtype, nearest(MODULO, message, y, x))).all()


def test_a_parameter_may_be_one_block() -> None:
    plain = codecs.guarded(8, UNIT)
    whole = Codec(
        "whole", Layout(0, plain.layout.fields, "tensor"), plain.steps, plain.receive, True, plain.near, plain.guard
    )
    x, y = drawn(3, 300)
    message = encode(whole, x, (1, 2))
    assert trusted(whole, message, y).tolist() == [True]
    y[299] += 1
    assert trusted(whole, message, y).tolist() == [False]
    assert trusted(whole, b"", x[:0]).size == 0
