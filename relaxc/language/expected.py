"""What the parser could have taken, in the user's words."""

from __future__ import annotations

from collections.abc import Mapping

from relaxc.language.words import listed

GROUPS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"RELAX", "PARAM", "ALGORITHM", "CODEC", "CLUSTER"}), "a statement such as `relax gradients`"),
    (frozenset({"NUMBER", "QUANTITY", "STRING", "NAME", "LPAR", "MINUS"}), "a value"),
    (frozenset({"STATE", "LET", "AFTER", "NAME"}), "a statement"),
    (frozenset({"SEND", "PER", "RECEIVE", "LET", "GUARD", "STATE", "NAME"}), "`send`, `let` or another statement"),
    (frozenset({"PLUS", "STAR", "CIRCUMFLEX"}), "an operator"),
    (frozenset({"PLUS", "MINUS"}), "an operator"),
    (frozenset({"OR"}), "an operator"),
    (frozenset({"NAME", "EVERY", "PHASE"}), "a clause such as `compress = 8bit`"),
    (frozenset({"WITH", "NAME"}), "gradients, weights, updates, momentum or `with`"),
    (frozenset({"NAME"}), "a name"),
)
"""Sets of tokens that have a name of their own; the first that is contained wins."""

PART_OF = {
    "a value": {"NOT", "NAME", "EVERY", "PHASE", "STEP"},
    "a statement": {"EVERY", "PHASE", "STEP"},
    "an operator": {
        "MINUS",
        "SLASH",
        "OR",
        "AND",
        "LESSTHAN",
        "MORETHAN",
        "CIRCUMFLEX",
        "STAR",
        "COMPARISON",
        "DOT",
        "LPAR",
    },
    "a clause such as `compress = 8bit`": {"STEP", "COMMA", "SEMICOLON"},
}
"""Tokens that a group also stands for, where they are possible."""


def expected(possible: set[str], text_of: Mapping[str, str]) -> str:
    """`text_of` maps the type of a token that is written in one way to its text."""
    rest = {"COMPARISON" if text_of.get(t, "") in COMPARISONS else t for t in possible}
    phrases = []
    for group, phrase in GROUPS:
        if group <= rest:
            rest -= group | PART_OF.get(phrase, set())
            phrases.append(phrase)
    literal = sorted(f"`{text_of[t]}`" for t in rest if t in text_of)
    return listed(
        [
            *_without_operators(phrases, literal),
            *literal,
            *(["the end of the statement"] if "$END" in rest and not phrases else []),
        ]
    )


COMPARISONS = {"<=", ">=", "==", "!="}


def _without_operators(phrases: list[str], literal: list[str]) -> list[str]:
    """That an expression may go on is no news where something else is missing."""
    return [p for p in phrases if p != "an operator"] if len(phrases) + len(literal) > 1 else phrases
