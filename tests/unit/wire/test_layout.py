"""Bytes of fields and blocks, by hand."""

from __future__ import annotations

import pytest

from relaxc.wire.layout import Field, Layout, WireType, parts

MINMAX8 = Layout(
    512,
    (
        Field("low", WireType("f32"), False),
        Field("scale", WireType("f32"), False),
        Field("level", WireType("uint", 8), True),
    ),
)


@pytest.mark.parametrize(("bits", "expected"), [(1, [1]), (3, [1, 2]), (5, [1, 4]), (7, [1, 2, 4]), (8, [8])])
def test_widths_are_split_into_powers_of_two(bits: int, expected: list[int]) -> None:
    assert list(parts(bits)) == expected


@pytest.mark.parametrize(
    ("bits", "items", "expected"), [(1, 9, 2), (4, 3, 2), (3, 8, 3), (3, 9, 2 + 3), (8, 5, 5), (7, 1, 3)]
)
def test_packed_fields_take_whole_bytes_per_part(bits: int, items: int, expected: int) -> None:
    assert WireType("uint", bits).bytes_of(items, 4) == expected


def test_a_run_is_whole_blocks_and_a_short_one() -> None:
    assert MINMAX8.bytes_of(0) == 0
    assert MINMAX8.bytes_of(512) == 8 + 512
    assert MINMAX8.bytes_of(1025) == 2 * 520 + 9


def test_real_is_as_wide_as_the_arithmetic() -> None:
    exact = Layout(512, (Field("value", WireType("real"), True),))
    assert (exact.bytes_of(3, 4), exact.bytes_of(3, 8)) == (12, 24)


@pytest.mark.parametrize("unit", ["tensor", "chunk"])
def test_a_run_per_tensor_or_chunk_is_one_block(unit: str) -> None:
    layout = Layout(0, MINMAX8.fields, unit)
    assert layout.bytes_of(0) == 0
    assert layout.bytes_of(1) == 9
    assert layout.bytes_of(5000) == 8 + 5000
    assert layout.block_of(5000) == 5000 and layout.block_of(0) == 1
    assert MINMAX8.block_of(5000) == 512


@pytest.mark.parametrize(
    ("part", "items", "kept"),
    [(0.01, 1000, 10), (0.01, 50, 1), (0.01, 149, 1), (0.01, 151, 2), (0.5, 1, 1), (3, 2, 2), (3, 100, 3), (1, 9, 1)],
)
def test_a_top_keeps_a_share_or_a_count_but_at_least_one(part: float, items: int, kept: int) -> None:
    wire = WireType("top", part=part)
    assert wire.kept(items) == kept
    assert (wire.bytes_of(items, 4), wire.bytes_of(items, 8)) == (8 * kept, 12 * kept)
