"""Formatting changes no meaning, loses no comment and is done after one pass, for trees and for texts."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from relaxc.language import syntax
from relaxc.language.format import format
from relaxc.language.parse import parse
from relaxc.language.source import Source, Span

NOWHERE = Span(Source("", ""), 0, 0)
KEYWORDS = {
    "param",
    "cluster",
    "relax",
    "with",
    "for",
    "algorithm",
    "codec",
    "state",
    "let",
    "step",
    "every",
    "after",
    "phase",
    "per",
    "send",
    "receive",
    "near",
    "guard",
    "and",
    "or",
    "not",
}

names = st.from_regex(r"[a-z_][a-z0-9_]{0,5}", fullmatch=True).filter(lambda n: n not in KEYWORDS)
keys = names | st.sampled_from(["every", "phase", "step"])


def number(value: float) -> syntax.Number:
    return syntax.Number(NOWHERE, value, repr(value))


numbers = st.floats(0, 1e300, allow_nan=False).map(number)
quantities = st.builds(
    syntax.Quantity,
    st.just(NOWHERE),
    st.floats(0, 1e30),
    st.sampled_from(["bit", "%", "step", "ns", "us", "ms", "s", "KiB", "MB", "Gbps"]),
)
strings = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x2FF, exclude_characters='"', exclude_categories=["C"]), max_size=8
)
leaves = (
    numbers
    | quantities
    | st.builds(syntax.String, st.just(NOWHERE), strings)
    | st.builds(syntax.Name, st.just(NOWHERE), names)
    | st.builds(syntax.Member, st.just(NOWHERE), names, names)
)
OPERATORS = ["+", "-", "*", "/", "^", "and", "or", "<", "<=", ">", ">=", "==", "!="]


def inner(e: st.SearchStrategy[syntax.Expression]) -> st.SearchStrategy[syntax.Expression]:
    keywords = st.lists(st.builds(syntax.Keyword, st.just(NOWHERE), keys, e), max_size=2).map(tuple)
    return (
        st.builds(syntax.Binary, st.just(NOWHERE), st.sampled_from(OPERATORS), e, e)
        | st.builds(syntax.Unary, st.just(NOWHERE), st.sampled_from(["-", "not"]), e)
        | st.builds(syntax.Call, st.just(NOWHERE), names, st.lists(e, max_size=2).map(tuple), keywords)
    )


expressions = st.recursive(leaves, inner, max_leaves=8)
clauses = st.lists(st.builds(syntax.Clause, st.just(NOWHERE), keys, st.just(NOWHERE), expressions), max_size=3).map(
    tuple
)
parameters = st.lists(st.builds(syntax.Parameter, st.just(NOWHERE), names, st.none() | expressions), max_size=3).map(
    tuple
)
simple = (
    st.builds(syntax.State, st.just(NOWHERE), names, st.none() | expressions)
    | st.builds(syntax.Let, st.just(NOWHERE), names, expressions)
    | st.builds(syntax.Assign, st.just(NOWHERE), names, st.sampled_from(["=", "+=", "-=", "*=", "/="]), expressions)
    | st.builds(syntax.Step, st.just(NOWHERE))
)


def blocks(s: st.SearchStrategy[syntax.Statement]) -> st.SearchStrategy[syntax.Statement]:
    body = st.lists(s, max_size=3).map(tuple)
    return (
        st.builds(syntax.Every, st.just(NOWHERE), expressions, body)
        | st.builds(syntax.After, st.just(NOWHERE), expressions, body)
        | st.builds(syntax.Phase, st.just(NOWHERE), names, st.none() | expressions, body)
    )


statements = st.recursive(simple, blocks, max_leaves=4)
wires = st.builds(syntax.Wire, st.just(NOWHERE), names, st.none() | expressions)
codec_statements = (
    st.builds(syntax.Per, st.just(NOWHERE), names, st.none() | expressions)
    | st.builds(syntax.Let, st.just(NOWHERE), names, expressions)
    | st.builds(syntax.Send, st.just(NOWHERE), names, wires, expressions)
    | st.builds(syntax.Receive, st.just(NOWHERE), st.none() | names, expressions)
)


@st.composite
def relaxations(draw: st.DrawFn) -> syntax.Relax:
    name, ours = draw(names), draw(st.booleans())
    selector, given_ = draw(st.none() | expressions), draw(st.none() | clauses)
    return syntax.Relax(NOWHERE, name if ours else None, None if ours else name, NOWHERE, selector, given_)


items = (
    st.builds(syntax.Param, st.just(NOWHERE), names, expressions)
    | st.builds(syntax.Cluster, st.just(NOWHERE), clauses)
    | relaxations()
    | st.builds(syntax.Algorithm, st.just(NOWHERE), names, parameters, st.lists(statements, max_size=3).map(tuple))
    | st.builds(syntax.Codec, st.just(NOWHERE), names, parameters, st.lists(codec_statements, max_size=3).map(tuple))
)
files = st.lists(items, max_size=3).map(lambda made: syntax.File(Source("", ""), tuple(made), ()))

TOKENS = [
    "relax",
    "gradients",
    "for",
    '"a"',
    "or",
    "ndim",
    "<",
    "2",
    "{",
    "compress",
    "=",
    "minmax",
    "(",
    "4",
    ",",
    "block",
    "=",
    "-",
    "2",
    "^",
    "2",
    ")",
    ",",
    "delay",
    "=",
    "1",
    "}",
]
ALGORITHM = [
    "algorithm",
    "a",
    "(",
    "b",
    "=",
    "1",
    ",",
    "c",
    ")",
    "{",
    "state",
    "s",
    "step",
    "every",
    "2",
    "{",
    "s",
    "+=",
    "(",
    "a",
    "+",
    "b",
    ")",
    "after",
    "3",
    "{",
    "let",
    "d",
    "=",
    "s",
    "}",
    "}",
    "phase",
    "p",
    "for",
    "4",
    "{",
    "}",
    "}",
]
CODEC = [
    "codec",
    "c",
    "(",
    "n",
    "=",
    "2",
    ")",
    "{",
    "per",
    "block",
    "(",
    "n",
    ")",
    "send",
    "f",
    ":",
    "uint",
    "(",
    "8",
    ")",
    "=",
    "min",
    "(",
    "x",
    ")",
    "receive",
    "=",
    "f",
    "}",
]
gaps = st.sampled_from(
    [" ", "\n", "\n\n", "\t", "\n\n\n ", " # note\n", "\n# alone\n", "\n\n  # apart\n\n", "\r\n", " #\n"]
)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(files)
def test_trees_survive(file: syntax.File) -> None:
    text = format(file)
    again = parse(Source("", text))
    assert again == file
    assert format(again) == text


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.data())
def test_comments_and_layout(data: st.DataObject) -> None:
    words = [*TOKENS, *ALGORITHM, *CODEC]
    text = "".join(word + data.draw(gaps) for word in words)
    file = parse(Source("", text))
    canonical = format(file)
    again = parse(Source("", canonical))
    assert again == file
    assert sorted(c.text for c in again.comments) == sorted(c.text for c in file.comments)
    assert format(again) == canonical
