"""What codecs keep of Gaussian values, against closed forms; and what `auto` makes of it."""

from __future__ import annotations

from math import pi

import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.codec import EXACT
from relaxc.program.contraction import contraction
from relaxc.program.ir import Apply, Assign, Codec, Constant, Encode, Let, Program, flattened


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def codec(written: str) -> Codec:
    made = program(f"relax with choco {{ compress = {written}, gamma = 0.01 }}")
    return next(s.value.codec for s in flattened(made.bodies[0].statements)
                if isinstance(s, Let) and isinstance(s.value, Encode))  # fmt: skip


def test_signs_with_their_mean_magnitude_keep_two_parts_in_pi() -> None:
    """|x|_1^2 / (d |x|_2^2) is (E|x|)^2 / E x^2 = 2 / pi."""
    assert contraction(codec("1bit")) == pytest.approx(2 / pi, abs=2e-3)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_levels_lose_a_twelfth_of_their_square(bits: int) -> None:
    """A block of 512 normal values reaches about 3.04 to each side."""
    unit = 2 * 3.04 / (2**bits - 1)
    tolerance = 0.1 * unit**2 / 12 + 6e-4
    assert contraction(codec(f"{bits}bit")) == pytest.approx(1 - unit**2 / 12, abs=tolerance if bits > 2 else 0.1)


def test_what_loses_nothing_and_what_has_no_share() -> None:
    assert contraction(EXACT) == 1
    assert contraction(codec("bf16")) == 1
    assert contraction(codec("signs")) == 0  # levels of a size of their own
    near = pipeline.to_program(pipeline.to_spec(Source("s", "relax weights { compress = modulo(8) }"), {}))
    code = next(s.value for s in flattened(near.bodies[0].statements) if isinstance(s, Let))
    assert isinstance(code, Encode) and contraction(code.codec) is None


def test_three_digits_so_that_all_workers_agree() -> None:
    for name in ("1bit", "2bit", "4bit", "natural", "ternary", "qsgd(4)"):
        kept = contraction(codec(name))
        assert kept is not None and float(f"{kept:.3g}") == kept


@pytest.mark.parametrize(("compress", "half"), [("1bit", 0.3185), ("none", 0.5), ("8bit", 0.5)])
def test_auto_is_half_of_it(compress: str, half: float) -> None:
    made = program(f"relax with choco {{ compress = {compress}, gamma = auto }}")
    moves = next(s for s in made.bodies[0].statements if isinstance(s, Assign) and s.name == "weight")
    assert isinstance(moves.value, Apply) and isinstance(moves.value.arguments[1], Apply)
    factor = moves.value.arguments[1].arguments[0]
    assert isinstance(factor, Constant) and factor.value == pytest.approx(half, abs=2e-3)
