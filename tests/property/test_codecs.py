"""The codecs of the library on drawn blocks: error bounds, scale, and that a message is as long as its layout says."""

from __future__ import annotations

from typing import Any

import codecs_by_hand as codecs
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.program.evaluate import decode, encode
from relaxc.program.ir import Codec
from relaxc.program.selection import transform
from relaxc.wire.ownership import shares

Array = np.ndarray[Any, Any]

CODECS = st.one_of(
    st.builds(codecs.minmax, st.integers(1, 8), st.integers(1, 70), st.booleans()),
    st.builds(codecs.absmax, st.integers(2, 8), st.integers(1, 70), st.booleans()),
    st.builds(codecs.qsgd, st.integers(2, 8), st.integers(1, 70)),
    st.builds(codecs.onebit, st.integers(1, 70)),
    st.builds(codecs.ternary, st.floats(1, 4)),
    st.builds(codecs.topk, st.floats(0.001, 0.999), st.sampled_from([None, 1, 7, 64])),
    st.builds(codecs.topk, st.integers(1, 300), st.sampled_from([None, 1, 7, 64])),
    st.builds(codecs.randomk, st.integers(1, 70)),
    st.builds(codecs.dct, st.integers(1, 9), st.integers(1, 90)),
)
SCALE_FREE = CODECS
"""All but natural, modulo, signs and the casts."""


@st.composite
def tensors(draw: Any) -> Array:
    """Up to 200 elements over some magnitudes, with zeros and constant stretches, in f32 or f64."""
    seed, n = draw(st.integers(0, 2**31)), draw(st.integers(0, 200))
    generator = np.random.default_rng(seed)
    x = generator.standard_normal(n) * 10.0 ** generator.integers(-3, 4, n)
    x[generator.random(n) < 0.2] = 0
    x[n // 2 : n // 2 + draw(st.integers(0, 40))] = 0.7
    return x.astype(draw(st.sampled_from([np.float32, np.float64])))


def through(codec: Codec, x: Array) -> Array:
    return decode(codec, encode(codec, x, (3, 4)), x.size, x.dtype, x)


def blocks(codec: Codec, x: Array) -> list[Array]:
    block = codec.layout.block_of(x.size)
    return [x[start : start + block] for start in range(0, x.size, block)]


@settings(max_examples=300, deadline=None)
@given(CODECS, tensors())
def test_a_message_is_as_long_as_its_layout_says(codec: Codec, x: Array) -> None:
    assert len(encode(codec, x)) == codec.layout.bytes_of(x.size, x.itemsize)


@settings(max_examples=300, deadline=None)
@given(SCALE_FREE, tensors(), st.integers(-30, 30))
def test_powers_of_two_scale_exactly(codec: Codec, x: Array, power: int) -> None:
    factor = x.dtype.type(2.0**power)
    assert (through(codec, x * factor) == through(codec, x) * factor).all()


@settings(max_examples=300, deadline=None)
@given(st.integers(1, 8), st.integers(1, 70), st.booleans(), tensors())
def test_minmax_is_off_by_a_level_at_most(bits: int, block: int, stochastic: bool, x: Array) -> None:
    codec = codecs.minmax(bits, block, stochastic)
    for before, after in zip(blocks(codec, x), blocks(codec, through(codec, x)), strict=True):
        level = (before.max() - before.min()) / (2**bits - 1)
        slack = 1e-5 * max(abs(before.max()), abs(before.min()))
        assert np.abs(after - before).max() <= level * (1 if stochastic else 0.5) + slack


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 8), st.integers(1, 70), tensors())
def test_qsgd_keeps_signs_and_is_off_by_a_level_at_most(bits: int, block: int, x: Array) -> None:
    codec = codecs.qsgd(bits, block)
    for before, after in zip(blocks(codec, x), blocks(codec, through(codec, x)), strict=True):
        level = np.linalg.norm(before.astype(np.float64)) / (2 ** (bits - 1) - 1)
        assert np.abs(after - before).max() <= level * (1 + 1e-5)
        assert (after * before >= 0).all()


@settings(max_examples=200, deadline=None)
@given(tensors())
def test_natural_gives_one_of_two_neighbours(x: Array) -> None:
    after = through(codecs.natural(), x)
    assert (after[x == 0] == 0).all()
    ratio = after[x != 0] / x[x != 0]
    assert ((ratio > 0.5) & (ratio < 2)).all() or not ratio.size
    assert (np.frexp(after[x != 0])[0] == np.copysign(0.5, x[x != 0])).all()


@settings(max_examples=300, deadline=None)
@given(st.integers(2, 8), st.floats(-0.999, 0.999), tensors())
def test_modulo_decodes_next_to_what_is_near(bits: int, part: float, x: Array) -> None:
    unit = 0.125
    near = x.astype(np.float64) + part * (2 ** (bits - 1) - 1) * unit
    code = encode(codecs.modulo(bits, unit), x.astype(np.float64), (3, 4))
    found = decode(codecs.modulo(bits, unit), code, x.size, np.float64, near)
    assert np.abs(found - x).max(initial=0) <= unit * (1 + 1e-6)


@settings(max_examples=200, deadline=None)
@given(CODECS, st.integers(0, 3000), st.integers(1, 6), st.integers(0, 20))
def test_shares_cut_no_block(codec: Codec, elements: int, workers: int, number: int) -> None:
    """Encoded share by share, with the first element of each, a tensor gives the blocks that it has as a whole."""
    x = np.random.default_rng(elements).standard_normal(elements)
    owned = sorted(s for s in shares(number, elements, codec.layout, workers) if s[1] > s[0])
    parts = [encode(codec, x[start:end], (3, 4), start) for start, end in owned]
    assert b"".join(parts) == encode(codec, x, (3, 4))


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.floats(0.001, 0.999), st.integers(1, 300)), st.integers(0, 3), tensors())
def test_topk_keeps_the_largest_and_nothing_else(part: float, broken: int, x: Array) -> None:
    """By a sort in plain Python."""
    x[: min(broken, x.size)] = (np.nan, -np.inf, np.nan)[: min(broken, x.size)]
    kept = min(x.size, int(part) if part >= 1 else max(1, round(part * x.size)))
    order = sorted(range(x.size), key=lambda i: (-np.inf if np.isnan(x[i]) else 0, -abs(x[i]), i))
    wanted = np.zeros_like(x)
    wanted[order[:kept]] = x[order[:kept]]
    assert np.array_equal(through(codecs.topk(part), x), wanted, equal_nan=True)


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**64 - 1), tensors())
def test_randomk_keeps_one_element_of_a_block_as_it_is(block: int, key: int, x: Array) -> None:
    shared = (key & 0xFFFFFFFF, key >> 32)
    message = encode(codecs.randomk(block), x, shared=shared)
    after = decode(codecs.randomk(block), message, x.size, x.dtype, shared=shared)
    assert ((after == x) | (after == 0)).all()
    assert all(np.count_nonzero(part) <= 1 for part in np.split(after, range(block, x.size, block)))
    again = encode(codecs.randomk(block), after, (5, 6), shared=shared)
    assert again == message, "another encoding chooses the same elements"


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 12), tensors())
def test_the_cosine_transform_keeps_lengths_and_comes_back(side: int, x: Array) -> None:
    whole = through(codecs.dct(side, side**2), x)
    size = np.sqrt((x.astype(np.float64) ** 2).sum())
    assert np.abs(whole - x).max(initial=0) <= 1e-5 * size
    for part in blocks(codecs.dct(side), x):
        made = transform("dct", part[None], side)[0].astype(np.float64)
        assert np.isclose((made**2).sum(), (part.astype(np.float64) ** 2).sum(), rtol=1e-4)
