"""What a statement leaves open, source to source."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.language.automatic import Way, rewritten, shortened, statements
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.lower import lower
from relaxc.wire.parameters import Parameter
from relaxc.wire.selection import assign

TEXT = """# kept
relax gradients for "norm.*"
relax gradients for ndim >= 2 { compress = auto, delay = 1 }  # and this
relax gradients { compress = auto }
"""
NAMES = ["norm.a", "one.weight", "one.bias", "two.weight", "two.bias", "two.deep.weight"]


def test_statements_that_leave_it_open_are_found_among_all() -> None:
    found = statements(parse(Source("spec", TEXT)))
    assert [number for number, open_ in found.items() if open_.codec] == [1, 2]
    assert [number for number, open_ in found.items() if open_.route] == [0, 1, 2]


def test_a_codec_everywhere() -> None:
    made = rewritten(parse(Source("spec", TEXT)), {1: {Way("bf16"): ()}, 2: {Way("4bit"): ()}})
    assert made.text == (
        "# kept\n"
        'relax gradients for "norm.*"\n'
        "relax gradients for ndim >= 2 { compress = bf16, delay = 1 }  # and this\n"
        "relax gradients { compress = 4bit }\n"
    )
    assert made.name == "spec"


def test_several_codecs_become_several_statements_that_govern_what_was_chosen() -> None:
    chosen = {
        1: {Way("8bit"): ["two.weight"], Way("none"): ["one.weight", "two.deep.weight"]}, 2: {Way("bf16"): ()},
    }  # fmt: skip
    made = rewritten(parse(Source("spec", TEXT)), chosen, NAMES)
    program = lower(check(parse(made)))
    shapes = [(8, 8) if name.endswith("weight") else (8,) for name in NAMES]
    parameters = [Parameter(n, name, shape, "f32") for n, (name, shape) in enumerate(zip(NAMES, shapes, strict=True))]
    texts = [body.span.text for body in program.bodies]
    found = [texts[n] for n in assign([body.selector for body in program.bodies], parameters)]
    assert ["8bit" in text for text in found] == [name == "two.weight" for name in NAMES]
    assert ["none" in text for text in found] == [name in ("one.weight", "two.deep.weight") for name in NAMES]
    assert ["bf16" in text for text in found] == [name.endswith("bias") for name in NAMES]


def test_a_route_is_added_or_stands_in_place_of_auto() -> None:
    text = "relax gradients\nrelax gradients { route = auto, delay = 1 }\nrelax gradients { topology = ring }\n"
    made = rewritten(parse(Source("spec", text)), {0: {Way(None, "gather"): ()}, 1: {Way(None, "all"): ()}})
    assert made.text == (
        "relax gradients { route = gather }\nrelax gradients { delay = 1, route = all }\n"
        "relax gradients { topology = ring }\n"
    )


def test_what_stays_open_is_not_touched() -> None:
    text = "relax gradients {compress=8bit}   # as I wrote it\nrelax   gradients\n"
    assert rewritten(parse(Source("spec", text)), {0: {Way(): ()}}).text == text


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["one.weight", "one.bias"], ["one.*"]),
        (["two.weight", "two.bias"], ["two.bias", "two.weight"]),
        (["two.deep.weight"], ["two.deep.*"]),
        (NAMES, ["norm.*", "one.*", "two.*"]),
    ],
)
def test_names_are_shortened_to_whole_parts(names: list[str], patterns: list[str]) -> None:
    assert shortened(names, NAMES) == patterns


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(["a", "b", "ab", "0"]), min_size=1, max_size=3).map(".".join), unique=True),
    st.data(),
)
def test_patterns_match_what_is_meant_and_nothing_else(names: list[str], data: st.DataObject) -> None:
    meant = set(data.draw(st.lists(st.sampled_from(names), unique=True))) if names else set()
    patterns = shortened(meant, names)
    assert {name for name in names if any(fnmatchcase(name, p) for p in patterns)} == meant


def test_without_anything_to_choose_by_it_says_what_to_give() -> None:
    with pytest.raises(SpecError) as caught:
        check(parse(Source("spec", TEXT)))
    assert {d.code for d in caught.value.diagnostics} == {"RX0242"}
    assert all("--network" in d.help for d in caught.value.diagnostics)
