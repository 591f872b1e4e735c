"""What a statement leaves to be chosen, `compress = auto` and the route where none is written; and the same text with
something in its place, source to source.

Where a statement comes to several ways, it becomes several statements: those for some parameters by name, and behind
them the last one for the rest of what it governed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relaxc.language import format, syntax
from relaxc.language.knobs import KNOBS
from relaxc.language.parse import parse
from relaxc.language.source import Source, Span

AUTO = "auto"
CODECS = ("none", "bf16", "8bit", "4bit")
"""What `auto` may stand for, the one that loses least first."""
COMPRESS = "compress"
ROUTE = "route"
AS_ROUTE = (ROUTE, "topology")
"""The knobs that give a route, where there is one."""


@dataclass(frozen=True, slots=True)
class Open:
    """A statement, and which of codec and route it leaves open."""

    statement: syntax.Relax
    codec: bool
    route: bool


@dataclass(frozen=True, slots=True)
class Way:
    """What stands for what is open. None: as it is written, which for a route is the codec's own."""

    codec: str | None = None
    route: str | None = None

    @property
    def name(self) -> str:
        return " by ".join(part for part in (self.codec, self.route) if part is not None) or "as it stands"


def statements(file: syntax.File) -> dict[int, Open]:
    """Those that leave something open, by their number among all `relax` statements."""
    every = [item for item in file.items if isinstance(item, syntax.Relax)]
    found = {number: Open(item, _open_codec(item), _open_route(item)) for number, item in enumerate(every)}
    return {number: of for number, of in found.items() if of.codec or of.route}


def _open_codec(item: syntax.Relax) -> bool:
    return any(clause.key == COMPRESS and _is_auto(clause) for clause in item.clauses or ())


def _open_route(item: syntax.Relax) -> bool:
    if item.quantity is None or ROUTE not in KNOBS[item.quantity].parameters:
        return False
    return all(_is_auto(clause) for clause in item.clauses or () if clause.key in AS_ROUTE)


def _is_auto(clause: syntax.Clause) -> bool:
    return isinstance(clause.value, syntax.Name) and clause.value.name == AUTO


def filled(file: syntax.File, codec: str | None) -> syntax.File:
    """`file` with this codec wherever it is left open. Its places stay those of the text that was written, so what is
    wrong with it is shown there."""
    items = (_with(item, Way(codec)) if isinstance(item, syntax.Relax) else item for item in file.items)
    return replace(file, items=tuple(items))


Choice = Mapping[Way, Sequence[str]]
"""Names of parameters by way; the last way, whose names don't matter, is for all that are left."""


def rewritten(file: syntax.File, choices: Mapping[int, Choice], others: Collection[str] = ()) -> Source:
    """`file` with statement n made of `choices[n]`, or as it is. `others` are all parameters of the model: names are
    shortened to patterns that match none of those that another way is for."""
    text, made = file.source.text, []
    position = 0
    for number, open_ in statements(file).items():
        if number not in choices or tuple(choices[number]) == (Way(),):
            continue
        span = open_.statement.span
        made += [text[position : span.start], "\n".join(_replaced(open_.statement, choices[number], others))]
        position = span.end
    return Source(file.source.name, "".join(made) + text[position:])


def _replaced(item: syntax.Relax, choice: Choice, others: Collection[str]) -> Iterator[str]:
    *named, rest = choice
    taken: set[str] = set()
    for way in named:
        patterns = shortened(choice[way], set(others) - taken)
        taken |= set(choice[way])
        yield format.statement(_with(replace(item, selector=_selector(item, patterns)), way))
    yield format.statement(_with(item, rest))


def _with(item: syntax.Relax, way: Way) -> syntax.Relax:
    clauses = list(item.clauses or ())
    if way.codec is not None:
        clauses = [_decided(clause, way.codec) for clause in clauses]
    if way.route is not None:
        clauses = [clause for clause in clauses if clause.key not in AS_ROUTE]
        span = item.target_span
        clauses.append(syntax.Clause(span, ROUTE, span, syntax.Name(span, way.route)))
    return replace(item, clauses=tuple(clauses) if clauses else item.clauses)


def _decided(clause: syntax.Clause, codec: str) -> syntax.Clause:
    if clause.key != COMPRESS or not _is_auto(clause):
        return clause
    return replace(clause, value=_codec(codec, clause.value.span))


def _codec(text: str, span: Span) -> syntax.Expression:
    """As the parser reads it, at this place."""
    (item,) = parse(Source("auto", f"relax gradients {{ {COMPRESS} = {text} }}")).items
    assert isinstance(item, syntax.Relax) and item.clauses
    return replace(item.clauses[0].value, span=span)


def _selector(item: syntax.Relax, patterns: Sequence[str]) -> syntax.Expression:
    """Of what the statement governs, what is named so."""
    span = item.target_span
    test: syntax.Expression = syntax.String(span, patterns[0])
    for pattern in patterns[1:]:
        test = syntax.Binary(span, "or", test, syntax.String(span, pattern))
    return test if item.selector is None else syntax.Binary(span, "and", item.selector, test)


def shortened(names: Collection[str], others: Collection[str]) -> list[str]:
    """Patterns that match `names` and none else of `others`: a part of the model all of which is meant becomes
    `part.*`."""
    return list(_patterns("", set(names), set(others) - set(names)))


def _patterns(prefix: str, names: Collection[str], without: Collection[str]) -> Iterator[str]:
    inside: dict[str, list[str]] = {}
    for name in sorted(names):
        first, dot, _ = name[len(prefix) :].partition(".")
        inside.setdefault(prefix + first + dot, []).append(name)
    for part, found in inside.items():
        if not part.endswith("."):
            yield part
        elif not any(other.startswith(part) for other in without):
            yield f"{part}*"
        else:
            yield from _patterns(part, found, without)
