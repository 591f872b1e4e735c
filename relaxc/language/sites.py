"""Where in an algorithm's body something stands that training does not change: codecs, topologies, periods, delays.

What a parameter of an algorithm is for follows from where it stands.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from relaxc.language import syntax
from relaxc.language.functions import EXCHANGES, PERIODS
from relaxc.language.vocabulary import WRAPPERS


class Site(NamedTuple):
    """`kind` is codec, topology, feedback, route, period, delay, length (of a phase), or number (a name in
    arithmetic)."""

    kind: str
    value: syntax.Expression


PLACED = {"encode": "codec", "mix": "topology", "push": "topology", "relay": "topology", "delay": "delay"}
"""What the second argument of a function is."""

BY_KEYWORD = {"compress": "codec", "feedback": "feedback", "route": "route"}
"""What the arguments of an exchange are that are given by name."""


def sites(body: tuple[syntax.Statement, ...]) -> Iterator[Site]:
    """In text order, those inside of another after it."""
    for s in body:
        match s:
            case syntax.Every():
                yield Site("period", s.period)
            case syntax.After():
                yield Site("delay", s.delay)
            case syntax.Phase(length=length) if length is not None:
                yield Site("length", length)
            case syntax.State(value=value) | syntax.Let(value=value) | syntax.Assign(value=value) if value is not None:
                yield from within(value)
        yield from sites(inside(s))


def inside(s: syntax.Statement) -> tuple[syntax.Statement, ...]:
    return s.body if isinstance(s, syntax.Every | syntax.After | syntax.Phase) else ()


def within(e: syntax.Expression) -> Iterator[Site]:
    """The sites of an expression of an algorithm."""
    match e:
        case syntax.Name():
            yield Site("number", e)
        case syntax.Unary(operand=operand):
            yield from within(operand)
        case syntax.Binary(left=left, right=right):
            yield from within(left)
            yield from within(right)
        case syntax.Call():
            yield from _of_call(e)


def _of_call(e: syntax.Call) -> Iterator[Site]:
    for position, argument in enumerate(e.arguments):
        kind = kind_of(e.function, position)
        if kind == "number":
            yield from within(argument)
        else:
            yield Site(kind, argument)
    for keyword in e.keywords:
        if e.function in EXCHANGES and keyword.name in BY_KEYWORD:
            yield Site(BY_KEYWORD[keyword.name], keyword.value)
        else:
            yield from within(keyword.value)


def kind_of(function: str, position: int) -> str:
    """What the argument at that position, counted from 0, is for."""
    if function == "own":
        return "topology"
    return PLACED.get(function, "number") if position == 1 else "number"


def roles(site: Site) -> Iterator[tuple[str, syntax.Name]]:
    """The names at a site, each with the kind that it must have."""
    kind, e = site
    if isinstance(e, syntax.Name):
        yield kind, e
    elif isinstance(e, syntax.Call) and kind in ("codec", "topology"):
        for argument in (*e.arguments, *(k.value for k in e.keywords)):
            yield from _inner_roles(kind, e, argument)
    elif isinstance(e, syntax.Call) and kind == "period" and e.function in PERIODS:
        for argument in e.arguments:
            yield from _numbers(argument)
    else:
        yield from _numbers(e)


def _inner_roles(kind: str, outer: syntax.Call, e: syntax.Expression) -> Iterator[tuple[str, syntax.Name]]:
    """Of an argument of a codec or topology: one of its own kind, or a number."""
    if isinstance(e, syntax.Call) or (kind == "topology" and outer.function in WRAPPERS):
        yield from roles(Site(kind, e))
    else:
        yield from _numbers(e)


def _numbers(e: syntax.Expression) -> Iterator[tuple[str, syntax.Name]]:
    for site in within(e):
        yield from ((("number", site.value),) if isinstance(site.value, syntax.Name) else roles(site))
