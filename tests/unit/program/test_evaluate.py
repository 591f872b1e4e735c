"""The oracle, against closed forms and messages written out by hand."""

from __future__ import annotations

import struct

import codecs_by_hand as codecs
import numpy as np
import pytest

from relaxc.program.evaluate import decode, encode, round_to
from relaxc.program.ir import Codec, Constant, Read, Send
from relaxc.wire.layout import Field, Layout, WireType

BOUNDED = [codecs.minmax(2), codecs.minmax(4, 32), codecs.minmax(8, 7), codecs.absmax(2), codecs.absmax(8, 100)]
LINEAR = [*BOUNDED, codecs.onebit(64), codecs.minmax(8, 32, stochastic=True)]


def through(codec: Codec, x, keys=(1, 2)):
    return decode(codec, encode(codec, x, keys), x.size, x.dtype)


def normal(n, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(n).astype(dtype)


def items(bits: int, kind: str = "uint") -> Codec:
    """Sends x as it is, in one block of 16."""
    layout = Layout(16, (Field("item", WireType(kind, bits), True),))
    return Codec("items", layout, (Send(0, "item", Read("x")),), Read("item"), False)


@pytest.mark.parametrize("codec", [codecs.minmax(2), codecs.minmax(8, 7, stochastic=True)], ids=str)
@pytest.mark.parametrize("value", [0.0, 0.1, -3.5e-20, 1e20])
def test_minmax_is_exact_for_a_constant_block(codec, value):
    x = np.full(1000, value, np.float32)
    assert (through(codec, x) == x).all()


@pytest.mark.parametrize("codec", LINEAR, ids=lambda c: c.text)
def test_zeros_stay_zeros(codec):
    assert (through(codec, np.zeros(600, np.float32)) == 0).all()


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_minmax_hits_both_extremes(bits):
    x = np.linspace(-3, 2**bits - 4, 64, dtype=np.float32)  # the scale is 1
    decoded = through(codecs.minmax(bits), x)
    assert decoded[0] == x[0] and decoded[-1] == x[-1]


@pytest.mark.parametrize("codec", BOUNDED, ids=lambda c: c.text)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_error_is_at_most_half_a_level(codec, dtype):
    x = normal(1003, dtype)
    levels = 2 ** codec.layout.fields[-1].wire.bits - 1
    for start in range(0, x.size, codec.layout.block):
        block = x[start : start + codec.layout.block]
        if codec.text.startswith("minmax"):
            level = (block.max() - block.min()) / levels
        else:
            level = np.abs(block).max() / (levels // 2)
        assert np.abs(through(codec, block) - block).max() <= level * (0.5 + 1e-4)


def test_stochastic_rounding_is_a_level_at_most_and_unbiased():
    codec = codecs.minmax(4, 512, stochastic=True)
    x = normal(512)
    level = (x.max() - x.min()) / 15
    decoded = np.stack([through(codec, x, (k, 7)) for k in range(400)])
    assert np.abs(decoded - x).max() <= level * 1.001
    assert np.abs((decoded - x).mean(axis=0)).max() <= 5 * 0.5 * level / 20  # five standard errors


def test_dither_depends_on_the_element_and_not_on_how_the_run_is_cut():
    codec = codecs.minmax(4, 32, stochastic=True)
    x = normal(128)
    whole = encode(codec, x, (3, 4), first=320)
    assert whole == encode(codec, x[:64], (3, 4), first=320) + encode(codec, x[64:], (3, 4), first=384)
    assert whole != encode(codec, x, (3, 5), first=320)


@pytest.mark.parametrize("codec", LINEAR, ids=lambda c: c.text)
@pytest.mark.parametrize("power", [-20, -1, 3, 40])
def test_powers_of_two_scale_exactly(codec, power):
    x = normal(700)
    assert (through(codec, x * np.float32(2.0**power)) == through(codec, x) * np.float32(2.0**power)).all()


def test_onebit_by_hand():
    x = np.array([1, -2, 3, -4, 0, -0.0, 5, 1], np.float32)
    message = encode(codecs.onebit(8), x)
    assert message == struct.pack("<f", 2.0) + bytes([0b11110101])  # -0 >= 0
    assert decode(codecs.onebit(8), message, 8, np.float32).tolist() == [2, -2, 2, -2, 2, 2, 2, 2]


def test_minmax_by_hand_with_a_short_last_block():
    x = np.array([0, 1, 2, 3, 10, 16], np.float32)
    message = encode(codecs.minmax(2, 4), x)
    assert message == struct.pack("<ff", 0, 1) + bytes([0b11100100]) + struct.pack("<ff", 10, 2) + bytes([0b1100])


@pytest.mark.parametrize(
    ("bits", "levels", "packed"),
    [
        (1, [1, 0, 1, 1, 0, 0, 0, 1, 1, 1], [0b10011, 0b11010]),  # stride 2: elements 0 2 4 6 8, and 1 3 5 7 9
        (2, [0, 1, 2, 3, 1], [0b011000, 0b1101]),
        (4, [1, 2, 3, 4, 5], [0x41, 0x52, 0x03]),
        (8, [7, 0, 255], [7, 0, 255]),
        (3, [7, 0, 5, 2], [0b0101, 0b01 << 2 * 3 | 0b10 << 2 * 2 | 0b11]),
        (5, [16, 31, 1], [0b110, 0x08, 0x0F]),
        (6, [0b000001, 0b111110], [0b1001, 0xF0]),
        (7, [127, 64, 1], [0b101, 0b000011, 0x0F, 0x08]),
    ],
)
def test_packed_bytes_by_hand(bits, levels, packed):
    x = np.array(levels, np.float32)
    assert encode(items(bits), x) == bytes(packed)
    assert (through(items(bits), x) == x).all()


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("n", [1, 2, 5, 15, 16, 19])
def test_every_level_comes_back(bits, n):
    unsigned = np.arange(n) % 2**bits
    assert (through(items(bits), unsigned.astype(np.float32)) == unsigned).all()
    signed = (unsigned - 2 ** (bits - 1)).astype(np.float32)
    assert (through(items(bits, "int"), signed) == signed).all()


def test_levels_are_clamped_and_cut_off():
    x = np.array([-1, -0.5, 2.9, 3.5, 99, np.inf, -np.inf, np.nan], np.float32)
    assert through(items(2), x).tolist() == [0, 0, 2, 3, 3, 3, 0, 0]
    assert through(items(3, "int"), x).tolist() == [-1, 0, 2, 3, 3, 3, -4, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("codec", [codecs.minmax(8, 32), codecs.absmax(4, 32), codecs.onebit(32)], ids=lambda c: c.text)
def test_a_block_with_a_non_finite_element_decodes_non_finite_and_its_neighbour_does_not(codec, bad):
    x = normal(64)
    x[5] = bad
    decoded = through(codec, x)
    assert not np.isfinite(decoded[:32]).any() and np.isfinite(decoded[32:]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_f16_and_bf16_round_to_nearest_even(dtype):
    x = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 2.0**-133, 2.0**-134, 3.4e38, -1.5], dtype)
    assert round_to(x, "bf16").tolist() == [1, 1 + 2**-6, 1 + 2**-7, 2.0**-133, 0, np.inf, -1.5]
    y = np.array([1 + 2**-11, 1 + 3 * 2**-11, 65519, 65520, 2.0**-24, 2.0**-25, -0.0], dtype)
    assert round_to(y, "f16").tolist() == [1, 1 + 2**-9, 65504, np.inf, 2.0**-24, 0, 0]


def test_f64_to_bf16_rounds_once():
    x = np.array([1 + 2**-8 + 2**-40])  # through f32 this would be a tie, and go down
    assert round_to(x, "bf16")[0] == 1 + 2**-7


def test_bf16_agrees_with_the_upper_half_of_f32():
    bits = np.random.default_rng(0).integers(0, 2**32, 100_000, dtype=np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x)]
    rounded = (x.view(np.uint32) + 0x7FFF + (x.view(np.uint32) >> 16 & 1)) >> 16 << 16
    assert (round_to(x, "bf16").view(np.uint32) == rounded).all()


def test_casts_write_one_nan():
    x = np.array([-np.nan], np.float32)
    assert encode(codecs.cast("f16"), x) == b"\x00\x7e"
    assert encode(codecs.cast("bf16"), x) == b"\xc0\x7f"
    assert encode(codecs.cast("real"), x) == b"\x00\x00\xc0\x7f"


def test_sums_go_by_lanes_then_a_tree():
    x = np.zeros(64, np.float32)
    x[0], x[1], x[32] = 2.0**24, -(2.0**24), 1  # lane 0 loses the 1; in plain order it would be kept
    layout = Layout(64, (Field("sum", WireType("f32"), False), Field("none", WireType("uint", 1), True)))
    steps = (Send(0, "sum", codecs.Reduce("sum", Read("x"))), Send(1, "none", Constant(0.0)))
    assert encode(Codec("sum", layout, steps, Read("sum"), False), x)[:4] == struct.pack("<f", 0)


def test_an_empty_run_has_an_empty_message():
    assert encode(codecs.minmax(8), np.empty(0, np.float32)) == b""
    assert decode(codecs.minmax(8), b"", 0, np.float64).dtype == np.float64


def test_an_exact_power_of_two_is_sent_as_it_is_by_natural():
    x = np.array([1, -2, 0.5, 2.0**-126, -(2.0**127), 0, 2.0**-127], np.float32)
    assert through(codecs.natural(), x).tolist() == [1, -2, 0.5, 2.0**-126, -(2.0**127), 0, 0]


def test_natural_by_hand():
    """Exponents 127 + 0 and 127 + 1 behind two sign bits."""
    assert encode(codecs.natural(), np.array([-1, 2], np.float32)) == bytes([0b01, 127, 128])


def test_natural_draws_a_neighbour_with_the_right_mean():
    x = np.full(512, 1.25, np.float32)
    drawn = np.stack([through(codecs.natural(), x, (k, 3)) for k in range(40)])
    assert set(np.unique(drawn)) == {1.0, 2.0}
    assert abs(drawn.mean() - 1.25) < 5 * np.sqrt(0.25 * 0.75 / drawn.size)


def test_natural_does_not_hide_what_is_not_finite():
    x = np.array([np.nan, np.inf, -np.inf, 3.4e38], np.float32)
    assert np.isfinite(through(codecs.natural(), x)).tolist() == [False, False, False, True]


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("centre", [0.0, 1000.0])
def test_modulo_is_right_within_its_range_and_wrong_beyond(bits, centre):
    """Closed form: off by at most a unit where |x - y| < (2^(bits-1) - 1) units, and else by a multiple of 2^bits units."""
    unit, codec = 2.0**-7, codecs.modulo(bits, 2.0**-7)
    x = centre + normal(600, np.float64)
    y = x + unit * np.linspace(-(2**bits), 2**bits, 600)
    found = decode(codec, encode(codec, x, (1, 2)), 600, np.float64, y)
    turns = np.rint((found - x) / (unit * 2**bits))
    assert np.abs(found - x - turns * unit * 2**bits).max() <= unit * 1.001
    near = np.abs(x - y) < unit * (2 ** (bits - 1) - 1)
    assert not turns[near].any()
    assert turns[0] and turns[-1]
    np.testing.assert_allclose(np.abs(found - y).max(), unit * 2 ** (bits - 1), rtol=0.05)


def test_ternary_clips_outliers_and_keeps_a_constant():
    codec = codecs.ternary(2.5)
    assert (through(codec, np.full(100, 0.3, np.float32)) == np.float32(0.3)).all()
    x = np.ones(400, np.float32)
    x[0] = 100  # the root of the mean square is sqrt(10399 / 400)
    decoded = through(codec, x)
    assert decoded[0] == pytest.approx(2.5 * np.sqrt(10399 / 400), rel=1e-6)
    assert set(np.unique(decoded / decoded[0])) <= {0.0, 1.0}


@pytest.mark.parametrize("codec", [codecs.ternary(2.5), codecs.qsgd(4, 64)], ids=lambda c: c.text)
@pytest.mark.parametrize("power", [-90, -20, 5, 100])
def test_what_squares_is_scale_free_far_out(codec, power):
    x = normal(300)
    assert (through(codec, x * np.float32(2.0**power)) == through(codec, x) * np.float32(2.0**power)).all()


@pytest.mark.parametrize("codec", [codecs.ternary(100.0), codecs.qsgd(3, 64)], ids=lambda c: c.text)
def test_dithered_codecs_are_unbiased(codec):
    x = normal(64)
    drawn = np.stack([through(codec, x, (k, 5)) for k in range(3000)])
    level = drawn[drawn > 0].min()
    assert np.abs(drawn.mean(axis=0) - x).max() <= 5 * 0.5 * level / np.sqrt(3000)


@pytest.mark.parametrize("unit", ["tensor", "chunk"])
def test_a_run_is_one_block_per_tensor_and_per_chunk(unit):
    of_block = codecs.minmax(4, 5000)
    codec = Codec("c", Layout(0, of_block.layout.fields, unit), of_block.steps, of_block.receive, False)
    x = normal(1237)
    assert encode(codec, x) == encode(of_block, x)
    assert len(encode(codec, x)) == codec.layout.bytes_of(1237) == 8 + 619
    assert (through(codec, x) == through(of_block, x)).all()
    assert encode(codec, x[:0]) == b""


def test_signs_by_hand():
    assert through(codecs.signs(), np.array([3, -1, 0, np.nan], np.float32)).tolist() == [1, -1, 1, -1]


FUNCTIONS = [
    ("mod", [(7, 4, 3), (-1, 4, 3), (-8, 4, 0), (5.5, 2, 1.5), (1, -4, -3), (3, 0, 3)]),
    ("wrap", [(7, 4, -1), (2, 4, 2), (6, 4, -2), (-6, 4, 2), (-7, 4, 1), (3, 0, 3)]),
    ("round", [(0.5, 0), (1.5, 2), (-2.5, -2), (2.6, 3)]),
    ("floor", [(-0.5, -1), (2.9, 2)]),
    ("exp", [(0, 1), (1, np.float32(np.e))]),
    ("log", [(1, 0), (np.float32(np.e), np.float32(0.99999997))]),
    ("log2", [(1024, 10), (0, -np.inf)]),
    ("logb", [(1024, 10), (-1023, 9), (0, -np.inf), (1e-45, -149), (-np.inf, np.inf)]),
    ("sign", [(-3, -1), (0, 0), (2, 1)]),
    ("clamp", [(5, 0, 1, 1), (-5, 0, 1, 0), (0.5, 0, 1, 0.5)]),
    ("^", [(4, 0.5, 2), (2, -3, 0.125), (-2, 3, -8), (0, -2, 0)]),
    ("/", [(1, 0, 0), (0, 0, 0), (1, 4, 0.25)]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "cases"), FUNCTIONS, ids=[f for f, _ in FUNCTIONS])
def test_functions_by_hand(function, cases):
    """Each on the encoder's side, of one element and constants."""
    layout = Layout(4, (Field("out", WireType("f32"), True),))
    for *given, wanted in cases:
        value = codecs.apply(function, Read("x"), *map(float, given[1:]))
        codec = Codec("f", layout, (Send(0, "out", value),), Read("out"), False)
        assert through(codec, np.array([given[0]], np.float32))[0] == np.float32(wanted), (function, given)
