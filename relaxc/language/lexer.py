"""Text to tokens. What the language's words are comes from the grammar; what is no word becomes a diagnostic here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isinf
from typing import NamedTuple

from relaxc.language.diagnostics import Diagnostic, Label
from relaxc.language.report import MAX_SHOWN
from relaxc.language.source import Source, Span
from relaxc.language.syntax import Comment
from relaxc.language.words import clipped

CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffd\ud800-\udfff]+")
"""Never part of a spec, not even of a comment: invisible, or (U+FFFD) what was left of bytes that are no UTF-8."""

MISFITS = r'|(?P<UNCLOSED>"[^\r\n]*)|(?P<MISFIT>\.?\d(?:[eE][+-]|[\w.%])*)|(?P<STRAY>(?:[^\W\d]|[^\x00-\x7f])+|.)'
"""What is tried last: a string without its end, a number with something behind it, anything else."""

STRAY_HELP = {
    "'": 'write strings in double quotes: "..."',
    "`": 'write strings in double quotes: "..."',
    "&": "write `and`",
    "|": "write `or`",
    "!": "write `not`",
    "%": "a percentage has its number right before it: 1%",
    "\u201c": 'write strings in straight double quotes: "..."',
    "\u201d": 'write strings in straight double quotes: "..."',
    "\u2212": "write a minus sign as `-`",
    "\u00a0": "write a plain space",
}


MAX_ERRORS = MAX_SHOWN
"""As many syntax errors of one file are reported; twice as many are looked for."""


class Token(NamedTuple):
    """`type` is the grammar's name of the word."""

    type: str
    text: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Words:
    """The grammar's words: those that patterns describe, those written as they are, and those between tokens."""

    pattern: re.Pattern[str]
    literals: Mapping[str, str]
    ignored: frozenset[str]


def words(patterns: Sequence[tuple[str, str]], literals: Mapping[str, str], ignored: frozenset[str]) -> Words:
    """`patterns` are tried in their order, then symbols, the longest first; `literals` maps text to a token's type."""
    symbols = sorted((text for text in literals if not text.isidentifier()), key=len, reverse=True)
    alternatives = [f"(?P<{name}>{pattern})" for name, pattern in patterns]
    alternatives.append(f"(?P<SYMBOL>{'|'.join(map(re.escape, symbols))})")
    return Words(re.compile("|".join(alternatives) + MISFITS, re.DOTALL), literals, ignored)


def control_characters(source: Source) -> Iterator[Diagnostic]:
    for match in CONTROL.finditer(source.text):
        character = match[0][0]
        if character == "\ufffd":
            message, help_ = "bytes that are not UTF-8", "save the file as UTF-8"
        else:
            message, help_ = f"a character that can't be part of a spec: U+{ord(character):04X}", "delete it"
        yield Diagnostic("RX0001", message, (Label(Span(source, *match.span())),), help=help_)


def tokens(source: Source, known: Words, start: int, faults: list[Diagnostic], comments: list[Comment]) -> list[Token]:
    """The tokens from offset `start` on; what is no word goes to `faults` and leaves no token but STRAY ones."""
    found = []
    for match in known.pattern.finditer(source.text, start):
        type_, text = str(match.lastgroup), match[0]
        if type_ == "COMMENT":
            comments.append(_comment(source, match))
        elif type_ not in known.ignored:
            token = Token(known.literals.get(text, type_), text, *match.span())
            if len(faults) < 2 * MAX_ERRORS:
                faults.extend(_fault(token, Span(source, *match.span())))
            found.append(token._replace(type=FAULTS.get(token.type, token.type)))
    return found


FAULTS = {"UNCLOSED": "STRING", "MISFIT": "NUMBER", "STRAY": "STRAY"}
"""What the parser goes on with after a fault, so that one mistake is reported once."""


def _comment(source: Source, match: re.Match[str]) -> Comment:
    line_start = source.text.rfind("\n", 0, match.start()) + 1
    own_line = not source.text[line_start : match.start()].strip()
    return Comment(Span(source, *match.span()), match[0].rstrip(), own_line)


def _fault(token: Token, span: Span) -> Iterator[Diagnostic]:
    type_ = token.type
    if type_ in ("NUMBER", "QUANTITY") and isinf(split_quantity(token.text)[0]):
        yield Diagnostic("RX0005", "a number too large to work with", (Label(span),), help="write less than 1e308")
    elif type_ in FAULTS:
        yield from _misfit(type_, span)


def _misfit(type_: str, span: Span) -> Iterator[Diagnostic]:
    shown, place = clipped(span.text), (Label(span),)
    if type_ == "UNCLOSED":
        yield Diagnostic("RX0006", "a string without its closing quote", place, help="a string ends on its line")
    elif type_ == "MISFIT":
        yield Diagnostic(
            "RX0005",
            f"`{shown}` is not a number",
            (Label(span, "neither a number nor one with a unit"),),
            help="write numbers as 3, 0.25 or 1e-8; units are bit, step, %, ns, us, ms, s, MB, MiB, Gbps",
        )
    elif not CONTROL.match(span.text):
        yield Diagnostic("RX0001", f"`{shown}` is not part of the language", place, help=_stray_help(span.text))


def _stray_help(text: str) -> str | None:
    if text[0].isalpha():
        return "names are made of the letters a-z, digits and _"
    return STRAY_HELP.get(text[0])


def split_quantity(text: str) -> tuple[float, str]:
    """`8bit` -> 8.0, "bit"; `2steps` and `2step` have one unit."""
    number = text.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ%")
    unit = text[len(number) :]
    return float(number), "step" if unit == "steps" else unit
