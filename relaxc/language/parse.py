"""Text to syntax tree, by the LALR(1) parser that lark makes of grammar/relax.lark. Only this module knows lark.

A file is parsed item by item: the keywords that start an item are reserved, so a mistake in one hides none in the next.
The parser's tables are kept in the user's cache, because making them takes ten times as long as reading them.
"""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice, pairwise
from typing import Any

import lark
from lark.exceptions import UnexpectedToken

from relaxc import keep, resources
from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.expected import expected
from relaxc.language.lexer import MAX_ERRORS, Token, Words, control_characters, tokens, words
from relaxc.language.report import shortened
from relaxc.language.source import Source, Span
from relaxc.language.tree import MAX_DEPTH, Builder, depth
from relaxc.language.words import clipped, did_you_mean

OPTIONS: dict[str, Any] = {
    "parser": "lalr", "lexer": "basic", "start": ["item", "expr"], "keep_all_tokens": True, "maybe_placeholders": False,
}  # fmt: skip
ITEMS = {"RELAX": "relax", "PARAM": "param", "CLUSTER": "cluster", "ALGORITHM": "algorithm", "CODEC": "codec"}
OPENING = {"LBRACE": "RBRACE", "LPAR": "RPAR"}
CLOSING = {"RBRACE": "LBRACE", "RPAR": "LPAR"}


def parse(source: Source) -> syntax.File:
    """The syntax tree of a file.

    Raises SpecError with every syntax error of the file (RX00), in text order.
    """
    faults: list[Diagnostic] = list(islice(control_characters(source), MAX_ERRORS))
    comments: list[syntax.Comment] = []
    found = tokens(source, _parser().words, 0, faults, comments)
    items = []
    for piece in _pieces(source, found):
        items.append(_attempt("item", source, piece, faults))
        if len(faults) > 2 * MAX_ERRORS:
            break
    _raise(faults)
    return syntax.File(source, tuple(items), tuple(comments))


def parse_expression(source: Source, start: int = 0) -> syntax.Expression:
    """The expression that the text from offset `start` to its end is. Raises SpecError (RX00)."""
    faults: list[Diagnostic] = list(islice(control_characters(source), MAX_ERRORS))
    found = tokens(source, _parser().words, start, faults, [])
    end = Token("$END", "", len(source.text), len(source.text))
    expression = _attempt("expr", source, Piece(found, end), faults)
    _raise(faults)
    assert expression is not None
    result: syntax.Expression = expression
    return result


def _raise(faults: list[Diagnostic]) -> None:
    if not faults:
        return
    raise SpecError(shortened(sorted(faults, key=lambda d: d.labels[0].span.start), "errors"))


# --- the parser made of the grammar


@dataclass(frozen=True, slots=True)
class Parser:
    """lark's parser, the words that it takes, and how each word that has one form is written."""

    lark: lark.Lark
    words: Words
    text_of: dict[str, str]


@cache
def _parser() -> Parser:
    made = _lark()
    fixed = {t.pattern.value: t.name for t in made.terminals if t.pattern.type == "str"}
    patterns = [(t.name, t.pattern.value) for t in made.terminals if t.pattern.type == "re"]
    return Parser(
        made, words(patterns, fixed, frozenset(made.lexer_conf.ignore)), {name: text for text, name in fixed.items()}
    )


def _lark() -> lark.Lark:
    grammar = (resources.folder("grammar") / "relax.lark").read_text(encoding="utf-8")
    version = f"{lark.__version__} {sys.version} {OPTIONS}"
    key = hashlib.sha256(f"{version}\n{grammar}".encode()).hexdigest()
    path = resources.cache_folder() / "grammar" / f"{key[:32]}.tables"
    kept = keep.recall(path)
    if kept is not None:
        try:
            return lark.Lark.load(io.BytesIO(kept))
        except Exception:  # noqa: BLE001 - whatever another build of lark put there, make it again
            pass
    made = lark.Lark(grammar, **OPTIONS)
    memory = io.BytesIO()
    made.save(memory)
    keep.remember(path, memory.getvalue())
    return made


# --- pieces of a file


@dataclass(frozen=True, slots=True)
class Piece:
    """The tokens of one item, and the token after them, which is the next item's first or the end of the file."""

    tokens: list[Token]
    next: Token


def _pieces(source: Source, found: list[Token]) -> Iterator[Piece]:
    borders = [*_borders(source, found), len(found)]
    if borders[0] > 0:
        borders.insert(0, 0)
    end = Token("$END", "", len(source.text), len(source.text))
    for start, stop in pairwise(borders):
        yield Piece(found[start:stop], found[stop] if stop < len(found) else end)


def _borders(source: Source, found: list[Token]) -> Iterator[int]:
    """Where items start: at their keywords, inside brackets only where the keyword is the first word of its line."""
    level = 0
    for index, token in enumerate(found):
        if token.type in OPENING:
            level += 1
        elif token.type in CLOSING:
            level = max(level - 1, 0)
        elif token.type in ITEMS and (level == 0 or _first_on_line(source, found, index)):
            level = 0
            yield index


def _first_on_line(source: Source, found: list[Token], index: int) -> bool:
    return index == 0 or "\n" in source.text[found[index - 1].end : found[index].start]


# --- one piece


def _attempt(start: str, source: Source, piece: Piece, faults: list[Diagnostic]) -> Any:
    """The item or expression; None where the text has mistakes, whose new ones go to `faults`."""
    if any(token.type == "STRAY" for token in piece.tokens):
        return None
    too_deep = _bracket_too_deep(piece)
    if too_deep:
        faults.append(_deep(Span(source, too_deep.start, too_deep.end)))
        return None
    tree = _tree(start, source, piece, faults)
    if tree is None:
        return None
    builder = Builder(source)
    if depth(tree) > MAX_DEPTH:
        faults.append(_deep(builder.span(tree)))
    return None if faults else builder.build(tree)


def _deep(span: Span) -> Diagnostic:
    help_ = "split the expression, or write several statements: the first that matches governs"
    return Diagnostic("RX0007", f"nested more than {MAX_DEPTH} levels deep", (Label(span),), help=help_)


def _bracket_too_deep(piece: Piece) -> Token | None:
    level = 0
    for token in piece.tokens:
        level += (token.type in OPENING) - (token.type in CLOSING)
        if level > MAX_DEPTH:
            return token
    return None


def _tree(start: str, source: Source, piece: Piece, faults: list[Diagnostic]) -> Any:
    machine = _parser().lark.parse_interactive(start=start)
    token = piece.next
    try:
        for token in piece.tokens:
            machine.feed_token(token)  # type: ignore[arg-type]  # lark asks a token for nothing but its type
        token = piece.next
        return machine.feed_eof()  # type: ignore[no-untyped-call]
    except UnexpectedToken:
        faults.append(_unexpected(source, piece, token, machine.accepts()))  # type: ignore[no-untyped-call]
        return None


# --- what went wrong in a piece


def _unexpected(source: Source, piece: Piece, token: Token, possible: set[str]) -> Diagnostic:
    span = Span(source, token.start, token.end)
    wanted = expected(possible, _parser().text_of)
    if token is piece.next and (opening := _unclosed(piece)):
        return _never_closed(Span(source, opening.start, opening.end), _last_span(source, piece), wanted)
    for explain in (_keyword_as_name, _nothing_to_close, _misspelt_item):
        if found := explain(piece, token, possible, span):
            return found
    return Diagnostic(
        "RX0002",
        f"{_found(token)}, expected {wanted}",
        (Label(span),),
        help=_help(token, possible) or _loose_unit(piece, token),
    )


def _found(token: Token) -> str:
    return f"found `{clipped(token.text)}`" if token.text else "found the end of the text"


def _last_span(source: Source, piece: Piece) -> Span:
    token = piece.tokens[-1]
    return Span(source, token.start, token.end)


def _unclosed(piece: Piece) -> Token | None:
    """The innermost bracket that is still open at the end of the piece."""
    open_: list[Token] = []
    for token in piece.tokens:
        if token.type in OPENING:
            open_.append(token)
        elif token.type in CLOSING and open_:
            open_.pop()
    return open_[-1] if open_ else None


def _never_closed(opening: Span, last: Span, wanted: str) -> Diagnostic:
    closing = {"{": "}", "(": ")"}[opening.text]
    labels = (Label(opening),) if last == opening else (Label(opening), Label(last, f"expected {wanted} after this"))
    return Diagnostic("RX0004", f"`{opening.text}` is never closed", labels, help=f"add the `{closing}`")


Explanation = Callable[[Piece, Token, set[str], Span], Diagnostic | None]


def _keyword_as_name(piece: Piece, token: Token, possible: set[str], span: Span) -> Diagnostic | None:
    if "NAME" not in possible or not token.text.isidentifier() or token.type == "NAME":
        return None
    label = Label(span, "a keyword, which can't be a name")
    return Diagnostic("RX0003", f"`{token.text}` is a keyword", (label,), help="choose another name")


def _nothing_to_close(piece: Piece, token: Token, possible: set[str], span: Span) -> Diagnostic | None:
    before = piece.tokens[: piece.tokens.index(token)] if token in piece.tokens else []
    opened = sum((t.type in OPENING) - (t.type in CLOSING) for t in before)
    if token.type not in CLOSING or opened > 0:
        return None
    return Diagnostic("RX0004", f"`{token.text}` closes nothing", (Label(span),), help="delete it")


def _misspelt_item(piece: Piece, token: Token, possible: set[str], span: Span) -> Diagnostic | None:
    if not possible >= set(ITEMS):
        return None
    shown = _found(token)
    meant = did_you_mean(token.text, ITEMS.values())
    return Diagnostic("RX0002", f"{shown}, expected a statement", (Label(span, "no statement starts like this"),),
                      help=meant or "statements start with relax, param, algorithm, codec or cluster")  # fmt: skip


def _help(token: Token, possible: set[str]) -> str | None:
    if token.text == "=" and "LESSTHAN" in possible:
        return "a comparison is written `==`"
    if token.text == "==" and "EQUAL" in possible:
        return "a value is given with `=`"
    if token.text in COMPARE and "AND" in possible:
        return "compare twice and join with `and`"
    if token.text in ("*", "**") and "STAR" not in possible:
        return "a power is written `^`"
    return None


UNITS = {
    "bit",
    "bits",
    "step",
    "steps",
    "ns",
    "us",
    "ms",
    "s",
    "kB",
    "MB",
    "GB",
    "KiB",
    "MiB",
    "GiB",
    "kbps",
    "Mbps",
    "Gbps",
}


def _loose_unit(piece: Piece, token: Token) -> str | None:
    """Help where the mistake follows a number, a blank and a unit, which reads as a number and a name."""
    before = piece.tokens[: piece.tokens.index(token)] if token in piece.tokens else piece.tokens
    for number, unit in (before[-2:], [*before[-1:], token]) if len(before) > 1 else ():
        if number.type == "NUMBER" and unit.text in UNITS:
            return f"write a unit right behind its number: {number.text}{unit.text.removesuffix('s') or 's'}"
    return None


COMPARE = {"<", "<=", ">", ">=", "==", "!="}
