"""What codecs keep of Gaussian values, against closed forms; and what `auto` makes of it."""

from __future__ import annotations

from math import pi

import numpy as np
import pytest

from relaxc import pipeline
from relaxc.language import library
from relaxc.language.source import Source
from relaxc.program.codec import EXACT
from relaxc.program.contraction import contraction, keeps_nothing
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Apply, Assign, Codec, Constant, Encode, Let, Program, flattened
from relaxc.wire.parameters import Parameter


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def codec(written: str) -> Codec:
    made = program(f"relax with choco {{ compress = {written}, gamma = 0.01 }}")
    return next(s.value.codec for s in flattened(made.bodies[0].statements)
                if isinstance(s, Let) and isinstance(s.value, Encode))  # fmt: skip


KEEP_NOTHING = {"signs": "no scale", "qsgd": "random, of few levels", "ternary": "random, of three levels"}
"""They lose more than there is, each for its reason: no feedback of its own may add that up."""


@pytest.mark.parametrize("name", sorted(set(library.codecs()) - {"modulo"}))  # which decodes near the receiver's value
def test_what_a_codec_of_the_library_decodes_is_nearer_than_0(name: str) -> None:
    assert keeps_nothing(codec(name)) == (name in KEEP_NOTHING)


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


SPARSE = """codec sparse(part = 0.3) {
  per block(64)
  send scale: f32 = max(abs(x))
  send kept: uint(1) = dither(part + 0 * x)
  send level: int(8) = round(x / scale * 127) * kept
  receive = level * scale / 127 * kept
}
"""


def left_of_a_disagreement(compress: str, gamma: float) -> float:
    """Of eight workers on a ring, after 150 rounds of CHOCO-SGD without gradients."""
    text = f"{SPARSE}relax with choco {{ compress = {compress}, gamma = {gamma} }}"
    parameter = Parameter(0, "a", (256,), "f64")
    apart = [np.random.default_rng(rank).normal(size=256) for rank in range(8)]

    class Pushed:
        """Sends each worker elsewhere in the first step, and nowhere afterwards."""

        def step(self, worker: int, of: Parameter, weight: np.ndarray, grad: np.ndarray) -> np.ndarray:
            return weight + grad

        def number(self, worker: int, of: Parameter, name: str) -> float:
            raise AssertionError(name)

        def state(self, worker: int, of: Parameter, name: str) -> np.ndarray:
            raise AssertionError(name)

    running = Interpreter(program(text), [parameter], 8, optimizer=Pushed())
    spread: list[float] = []
    for t in range(150):
        running.iterate([[a if t == 0 else 0 * a] for a in apart])
        weights = np.array([w[0] for w in running.weights])
        spread.append(float(np.linalg.norm(weights - weights.mean(0))))
        if spread[-1] > 1e3 * spread[0]:
            break
    return spread[-1] / spread[0]


@pytest.mark.parametrize("compress", ["1bit", "2bit", "sparse"])
def test_choco_settles_at_half_of_it_and_diverges_above_twice_of_it(compress: str) -> None:
    made = program(f"{SPARSE}relax with choco {{ compress = {compress}, gamma = 0.01 }}")
    code = next(s.value for s in flattened(made.bodies[0].statements) if isinstance(s, Let))
    assert isinstance(code, Encode)
    kept = contraction(code.codec)
    assert kept is not None
    assert left_of_a_disagreement(compress, kept / 2) < 0.2
    assert left_of_a_disagreement(compress, 2.6 * kept) > 100
