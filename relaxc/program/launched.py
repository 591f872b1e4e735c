"""What an `after async` launches: the exchanges that its block reads, and the codes that these send.

They happen only where nothing of the block is under way, each worker by itself, so nothing else may read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from relaxc.program.facts import lets_of_statements, of_the_launch
from relaxc.program.ir import (
    After,
    Encode,
    Exchange,
    Expression,
    Let,
    Read,
    Statement,
    children,
    flattened,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Launched:
    """By encoding place, the block of the `after async` to which an exchange or a code belongs; by name, that to which
    a let belongs: one that is made of such a code (`coded`), or one that is known at the landing only (`awaited`)."""

    exchanges: dict[int, int] = field(default_factory=dict)
    codes: dict[int, int] = field(default_factory=dict)
    coded: dict[str, int] = field(default_factory=dict)
    awaited: dict[str, int] = field(default_factory=dict)


def launched_of(statements: tuple[Statement, ...]) -> Launched:
    lets = lets_of_statements(statements)
    found = Launched()
    for after in asyncs(statements):
        for e in read_of_the_launch(after, lets):
            if isinstance(e, Exchange):
                _take(e, after.block, lets, found)
    landing = {s.name for after in asyncs(statements) for s in flattened(after.body) if isinstance(s, Let)}
    _await((let for name, let in lets.items() if name not in landing), found)
    return found


def asyncs(statements: tuple[Statement, ...]) -> Iterator[After]:
    return (s for s in flattened(statements) if isinstance(s, After) and s.asynchronous)


def read_of_the_launch(after: After, lets: Mapping[str, Let]) -> Iterator[Expression]:
    """All that the block reads of its launch, through lets, up to exchanges, these included."""
    seen = set(of_the_launch(after, lets))
    open_: list[Expression] = [lets[name].value for name in sorted(seen)]
    while open_:
        e = open_.pop()
        yield e
        if isinstance(e, Read) and e.name in lets and e.name not in seen:
            seen.add(e.name)
            open_.append(lets[e.name].value)
        open_ += beside(e)


def beside(e: Expression) -> tuple[Expression, ...]:
    return () if isinstance(e, Exchange) else children(e)


def outside_exchanges(e: Expression) -> Iterator[Expression]:
    """`e` and what it is made of, but for what is sent."""
    yield e
    for part in beside(e):
        yield from outside_exchanges(part)


def _take(e: Exchange, block: int, lets: Mapping[str, Let], found: Launched) -> None:
    found.exchanges[e.place] = block
    code = e.value
    while isinstance(code, Read) and code.name in lets:
        code = lets[code.name].value
    if isinstance(code, Encode):
        found.codes[code.place] = block


def _await(lets: Iterable[Let], found: Launched) -> None:
    """In text order, so that a let sees those above it."""
    for let in lets:
        for e in outside_exchanges(let.value):
            match e:
                case Exchange(place=place) if place in found.exchanges:
                    found.awaited[let.name] = found.exchanges[place]
                case Encode(place=place) if place in found.codes:
                    found.coded[let.name] = found.codes[place]
                case Read(name=name):
                    if name in found.awaited:
                        found.awaited[let.name] = found.awaited[name]
                    if name in found.coded:
                        found.coded[let.name] = found.coded[name]
