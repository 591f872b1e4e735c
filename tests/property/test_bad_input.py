"""Whatever the text, what comes out is a spec or diagnostics, and both can be shown."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.language import library
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.format import format
from relaxc.language.parse import parse
from relaxc.language.render import render_json, render_text
from relaxc.language.source import Source, decode

PIECES = [
    "relax", "gradients", "{", "}", "(", ")", "=", ",", "for", '"', "#", "\n", "\0", "\ufffd", "\ufeff", "8bit", "1e999", "^", "-",
    "not", "param", "codec", "algorithm", "every", "\u202e", "9" * 400, "1/0", "0.5.5", "optimizer.x", "*", "é", "\r", "none", "ndim <",
]  # fmt: skip


def survives(text: str) -> None:
    try:
        file = parse(Source("fuzz.relax", text))
        shown = check(file).warnings
    except SpecError as error:
        shown = error.diagnostics
        assert shown
    else:
        assert parse(Source("", format(file))) == file
    json.loads(render_json(shown))
    assert "\x1b" not in render_text(shown)


def texts() -> list[str]:
    specs = [library.spec(name) for name in library.specs()]
    return [file.source.text for file in specs if file is not None] + [
        "algorithm a(b = 1) { state s step every 2 { s += mean(grad, compress = 8bit) after async { s = 0 } } }",
        "codec c(n = 2) { per block(n) send f: uint(8) = min(x) receive near y = f + y }",
        'param a = 4bit param b = 2 ^ 8 relax gradients for "x" or not ndim < 2 { compress = minmax(a, block = b) }',
    ]


@pytest.mark.parametrize("seed", range(8))
def test_mutations(seed: int) -> None:
    draw = random.Random(seed)
    for text in texts():
        for _ in range(12):
            mutated = text
            for _ in range(draw.randint(1, 4)):
                at = draw.randrange(len(mutated) + 1)
                mutated = mutated[:at] + draw.choice(["", *PIECES]) + mutated[at + draw.choice([0, 0, 1, 5]) :]
            survives(mutated)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join) | st.binary(max_size=60).map(decode))
def test_soup(text: str) -> None:
    survives(text)


@pytest.mark.parametrize(
    "text",
    [
        "(" * 50_000,
        "relax gradients {" * 3_000,
        "param a = " + "1+" * 20_000 + "1",
        "\x01 a " * 20_000,
        "relax \n" * 3_000,
        '"' * 30_000,
        "- " * 30_000,
    ],
    ids=["brackets", "braces", "sum", "controls", "statements", "quotes", "signs"],
)
def test_large(text: str) -> None:
    survives(text)


def test_params_made_of_params() -> None:
    chain = "param a0 = f(1)\n" + "".join(f"param a{i + 1} = f(a{i}, a{i})\n" for i in range(300))
    survives(chain + "relax gradients")
    survives(
        "param a0 = 1\n"
        + "".join(f"param a{i + 1} = a{i} * 2\n" for i in range(2000))
        + "relax gradients { delay = a2000 }"
    )
