"""A codec's states: what is sent may depend on them, and they follow what is received."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxc import resources
from relaxc.language import syntax
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import CodecUse
from relaxc.program.codec import lower_codec
from relaxc.program.evaluate import States, decode, encode, follow, nearest, trusted
from relaxc.program.ir import Codec


def lowered(text: str, **arguments: Any) -> Codec:
    (definition,) = (i for i in parse(Source("codec.relax", text)).items if isinstance(i, syntax.Codec))
    return lower_codec(CodecUse(definition, tuple(arguments.items()), definition.span))


def modulo(**arguments: Any) -> Codec:
    path = Path(resources.folder("specs")) / "codecs" / "modulo.relax"
    return lowered(path.read_text(), **{"bits": 8, "unit": "auto", "block": 512, **arguments})


def counting(update: str) -> Codec:
    return lowered(
        "codec c() { per block(4) state seen = 2 send scale: f32 = seen send level: int(8) = x / scale"
        f" receive near y = level * scale + 0 * y guard = max(abs(y)) < 100 seen = {update} }}"
    )


def test_a_state_is_one_number_for_each_block() -> None:
    codec, states = counting("seen + max(y)"), States()
    x, y = np.arange(10, dtype=np.float32), np.repeat(np.float32([1, 0, 5]), 4)[:10]
    first = encode(codec, x, states=states)
    assert states["seen"].tolist() == [2, 2, 2] and codec.states == (("seen", 2.0),)
    follow(codec, first, y, states)
    assert states["seen"].tolist() == [3, 2, 7]
    second = encode(codec, x, states=states)
    scales = [np.frombuffer(second[at : at + 4], np.float32)[0] for at in (0, 8, 16)]
    assert scales == [3, 2, 7]
    assert encode(codec, x) == first, "without states, as they begin"


def test_no_state_becomes_non_finite() -> None:
    codec, states = counting("log(max(y))"), States()
    message = encode(codec, np.ones(8, np.float32), states=states)
    follow(codec, message, np.repeat(np.float32([0, 1]), 4), states)
    assert states["seen"].tolist() == [2, 0]


def test_a_state_that_nothing_sent_depends_on_is_none() -> None:
    codec = modulo(unit=0.001)
    assert codec.states == () and codec.guard is not None and codec.guard.updates == ()
    assert modulo().states == (("reach", 0.0),)


def test_a_state_is_not_of_elements() -> None:
    with pytest.raises(SpecError) as error:
        counting("y")
    assert error.value.diagnostics[0].code == "RX0232"


def test_a_guard_depends_on_no_state() -> None:
    with pytest.raises(SpecError) as error:
        lowered(
            "codec c() { per block(4) state seen = 2 send level: int(8) = x / seen receive near y = level + 0 * y"
            " let double = 2 * seen guard = max(y) < double seen = 3 }"
        )
    assert error.value.diagnostics[0].code == "RX0368"


@pytest.mark.parametrize("apart", [1e-5, 0.01, 3.0])
def test_the_unit_follows_the_distance(apart: float) -> None:
    """Learnt in a few messages, for twice the distance; then nothing trips, and the error is below that unit."""
    codec, draw = modulo(), np.random.default_rng(1)
    x = draw.standard_normal(1100).astype(np.float32)
    here, there = States(), States()
    trips = []
    for k in range(120):
        y = (x + apart * draw.uniform(-1, 1, x.size)).astype(np.float32)
        sent, heard = encode(codec, x, (1, k), states=here), encode(codec, y, (2, k), states=there)
        trips.append(int((~trusted(codec, sent, y)).sum()))
        error = np.abs(decode(codec, sent, x.size, x.dtype, nearest(codec, sent, y, x)) - x).max()
        follow(codec, sent, y, there)
        follow(codec, heard, x, here)
    assert sum(trips[8:]) == 0
    assert (trips[0] > 0) == (apart > 1e-4), "a first unit is a millionth of the largest"
    assert error < 1.1 * 2 * apart / 127 + 1e-6


def test_equal_workers_keep_a_unit_that_f32_can_count_in() -> None:
    codec, x, states = modulo(), np.linspace(-2, 2, 512).astype(np.float32), States()
    for k in range(50):
        message = encode(codec, x, (1, k), states=states)
        assert trusted(codec, message, x).all()
        follow(codec, message, x, states)
    zeros = np.zeros(20, np.float32)
    assert not decode(codec, encode(codec, zeros), 20, np.float32, zeros).any()


@pytest.mark.parametrize("c", [0.01, 1.0, 3.7, 1e6, 1e-20])
def test_values_that_differ_in_sign_alone(c: float) -> None:
    """Before any distance is known c and -c are turns that are the same modulo 2^10, with the same residue."""
    x = np.full(700, c, np.float32)
    x[::3] *= -1
    for own in (x, -x):
        assert not trusted(modulo(), encode(modulo(), own), -own).any()
        assert trusted(modulo(), encode(modulo(), own), own).all()
