"""Coefficients of the cosine transform, against the cosine of the C library."""

from __future__ import annotations

import math

import pytest

from relaxc.wire.cosines import coefficients, cosine, matrices


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8, 64, 127, 128])
def test_cosines_of_all_turns(length: int) -> None:
    for turn in range(4 * length):
        assert abs(cosine(turn, length) - math.cos(math.pi * turn / (2 * length))) < 2e-15


def test_a_quarter_of_a_turn_is_zero() -> None:
    assert cosine(9, 9) == cosine(27, 9) == 0


@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_rows_are_orthonormal(length: int) -> None:
    rows = coefficients(length)
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            assert abs(sum(a * b for a, b in zip(left, right, strict=True)) - (i == j)) < 1e-14


@pytest.mark.parametrize(
    ("elements", "made"),
    [(0, []), (64, [(0, 8, 8)]), (7, [(0, 1, 7)]), (8, [(0, 1, 8)]), (19, [(0, 2, 8), (16, 1, 3)])],
)
def test_a_short_block_is_whole_rows_and_what_is_left(elements: int, made: list[tuple[int, int, int]]) -> None:
    assert matrices(elements, 8) == made
