"""`compress = auto`: which statements have it, and the same text with codecs in its place, source to source.

Where a statement comes to several codecs, it becomes several statements: those for some parameters by name, and behind
them the last one for the rest of what it governed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from relaxc.language import format, syntax
from relaxc.language.report import Report
from relaxc.language.source import Source, Span

AUTO = "auto"
COMPRESS = "compress"
HELP = (
    "compile it with them: relaxc compile SPEC --model M --sample S --network '1Gbps, 200us' --workers 4, "
    "or write a codec; `auto` must stand in the statement itself, not in a param"
)


def refuse(report: Report, span: Span) -> None:
    """Where a spec is read with nothing to choose by."""
    label = "a model, a network and a number of workers say which codec pays"
    report.error("RX0242", "`compress = auto` has nothing to choose by", span, label, HELP)


def statements(file: syntax.File) -> list[tuple[int, syntax.Relax]]:
    """Those that leave their codec open, each with its number among all `relax` statements."""
    every = [item for item in file.items if isinstance(item, syntax.Relax)]
    return [(number, item) for number, item in enumerate(every) if any(map(_is_open, item.clauses or ()))]


def _is_open(clause: syntax.Clause) -> bool:
    return clause.key == COMPRESS and isinstance(clause.value, syntax.Name) and clause.value.name == AUTO


Choice = Mapping[str, Sequence[str]]
"""Names of parameters by codec; the last codec, whose names don't matter, is for all that are left."""


def rewritten(file: syntax.File, choices: Mapping[int, Choice], others: Collection[str] = ()) -> Source:
    """`file` with statement n made of `choices[n]`. `others` are all parameters of the model: names are shortened to
    patterns that match none of those that another codec is for."""
    text, made = file.source.text, []
    position = 0
    for number, item in statements(file):
        made += [text[position : item.span.start], "\n".join(_replaced(item, choices[number], others))]
        position = item.span.end
    return Source(file.source.name, "".join(made) + text[position:])


def _replaced(item: syntax.Relax, choice: Choice, others: Collection[str]) -> Iterator[str]:
    *named, rest = choice
    taken: set[str] = set()
    for codec in named:
        patterns = shortened(choice[codec], set(others) - taken)
        taken |= set(choice[codec])
        yield format.statement(_with_codec(replace(item, selector=_selector(item, patterns)), codec))
    yield format.statement(_with_codec(item, rest))


def _with_codec(item: syntax.Relax, codec: str) -> syntax.Relax:
    clauses = item.clauses or ()
    return replace(item, clauses=tuple(
        replace(c, value=syntax.Name(c.value.span, codec)) if _is_open(c) else c for c in clauses
    ))  # fmt: skip


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
