"""Whatever the text, what comes out is a spec or diagnostics, and both can be shown."""

from __future__ import annotations

import random

import pytest
from fuzzing import PIECES, library_texts, mutated, survives, written
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc import pipeline
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source, decode


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed: int) -> None:
    draw = random.Random(seed)
    for text in library_texts():
        for _ in range(4):
            survives(mutated(text, draw))


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.integers(0, 2**32))
def test_texts_by_the_grammar(seed: int) -> None:
    survives(written(random.Random(seed)))


def test_some_texts_by_the_grammar_are_specs() -> None:
    """Else they would test diagnostics only."""
    assert sum(survives(written(random.Random(seed))) for seed in range(200)) >= 5


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
        "algorithm a() { " + "every 2 { " * 5_000,
        "algorithm a() { " + "every 2 { " * 400 + "}" * 401,
    ],
    ids=["brackets", "braces", "sum", "controls", "statements", "quotes", "signs", "blocks", "closed"],
)
def test_large(text: str) -> None:
    assert not survives(text)


def makes_sense(text: str) -> bool:
    """Whether `text` is a program without mistakes; it may have more paths than can be compiled."""
    return len(pipeline.to_typed(pipeline.to_spec(Source("t.relax", text), {})).program.bodies) > 0


DEEP = 70
"""Levels of everything that nests, all of which the parser lets through."""


@pytest.mark.parametrize(
    "body",
    [
        "every 2 { " * DEEP + "weight *= 0.5" + " }" * DEEP,
        "weight *= " + "(1 + " * DEEP + "t" + ")" * DEEP,
        "weight *= " + " + ".join(["t"] * 3 * DEEP),
        "weight *= " + "-" * DEEP + "t",
        "weight *= " + "abs(" * DEEP + "t" + ")" * DEEP,
        "weight = mix(weight, " + "lazy(" * DEEP + "ring" + ")" * DEEP + ")",
        "weight = " + "mix(" * DEEP + "weight" + ", ring)" * DEEP,
        "every " + "max(2, " * DEEP + "2" + ")" * DEEP + " { weight *= 0.5 }",
    ],
    ids=["blocks", "brackets", "chain", "signs", "calls", "topologies", "exchanges", "header"],
)
def test_deep_and_right(body: str) -> None:
    survives(f"algorithm a() {{ step {body} }} relax with a")
    assert makes_sense(f"algorithm a() {{ step {body} }} relax with a")


def test_a_megabyte() -> None:
    line = f'relax gradients for "layer.*" {{ compress = 8bit }}  # {"the same again " * 12}\n'
    assert not survives(line * (2**20 // len(line)))
    assert makes_sense("algorithm a() { step\n" + "  weight += 1\n" * 2_000 + "} relax with a")


def codes(text: str) -> list[str]:
    try:
        return [d.code for d in check(parse(Source("t.relax", text))).warnings]
    except SpecError as error:
        return [d.code for d in error.diagnostics]


SPEC = "# one\nalgorithm a(k = 1) {\n  step\n  after k { weight *= 0.5 }  # two\n}\nrelax with a\n"


@pytest.mark.parametrize("text", [SPEC.replace("\n", "\r\n"), SPEC.replace("  ", "\t"), decode(b"\xef\xbb\xbf" + SPEC.encode())],
                         ids=["crlf", "tabs", "bom"])  # fmt: skip
def test_layout_means_nothing(text: str) -> None:
    assert codes(text) == []
    assert parse(Source("", text)) == parse(Source("", SPEC))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (SPEC + "\0", "RX0001"),
        (SPEC + "\ufeff", "RX0001"),
        (decode(SPEC.encode() + b"\xff"), "RX0001"),
        (SPEC.rstrip().removesuffix("a"), "RX0002"),
        (SPEC + "relax", "RX0002"),
        (SPEC + "algorithm b(", "RX0004"),
        (SPEC + "algorithm b() {", "RX0004"),
        (SPEC + "codec c() { send", "RX0004"),
        (SPEC + "relax gradients { compress =", "RX0004"),
        (SPEC.replace("algorithm a", "algorithm every"), "RX0003"),
        (SPEC.replace("(k = 1)", "(state = 1)"), "RX0003"),
        (SPEC.replace("step", "step let let = 2"), "RX0003"),
        (SPEC.replace("step", "step state phase = 2"), "RX0003"),
        (SPEC + "codec near() { send f: f32 = x  receive = f }", "RX0003"),
        (SPEC.replace("k = 1", "k = 1 / 0"), "RX0208"),
        (SPEC.replace("after k", "after k / 0"), "RX0208"),
        (SPEC + "codec c() { send f: uint(9) = x  receive = f }", "RX0232"),
    ],
)  # fmt: skip
def test_bad_text(text: str, code: str) -> None:
    assert codes(text) == [code]


def test_params_made_of_params() -> None:
    chain = "param a0 = f(1)\n" + "".join(f"param a{i + 1} = f(a{i}, a{i})\n" for i in range(300))
    survives(chain + "relax gradients")
    survives(
        "param a0 = 1\n"
        + "".join(f"param a{i + 1} = a{i} * 2\n" for i in range(2000))
        + "relax gradients { delay = a2000 }"
    )
