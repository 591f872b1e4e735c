"""The variants of a spec: other values for the knobs of its default statement, and for its params."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxc.language import syntax
from relaxc.language.automatic import CODECS
from relaxc.language.knobs import KNOBS
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.usage import UsageError

AXES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "gradients": {"compress": CODECS, "route": ("all", "gather", "ring"), "delay": ("0", "1")},
    "weights": {"compress": CODECS, "delay": ("0", "1")},
    "updates": {"compress": CODECS, "delay": ("0", "1")},
}
"""By quantity the knobs that are varied, from what relaxes least to what relaxes most."""
MOST = 512
"""Variants; more is a slip."""


@dataclass(frozen=True)
class Variant:
    """`chosen` has the value of each knob and param that is varied. `settings` are of params."""

    chosen: tuple[tuple[str, str], ...]
    source: Source
    settings: Mapping[str, str]

    @property
    def name(self) -> str:
        return ", ".join(f"{key} = {value}" for key, value in self.chosen) or "as it stands"

    @property
    def plain(self) -> bool:
        """Whether it compresses nothing, as far as the grid has a say in that."""
        return dict(self.chosen).get("compress") == "none"


def variants(source: Source, settings: Mapping[str, str], given: Mapping[str, Sequence[str]]) -> list[Variant]:
    """In order, those that relax least first. `given` are values for knobs of the default statement, or for params, in
    place of those that are tried otherwise or beside them.

    Raise SpecError for a text that is none, UsageError for a name that is neither, or for too many variants.
    """
    file = parse(source)
    params = {item.name for item in file.items if isinstance(item, syntax.Param)}
    statement = default_statement(file)
    axes = _axes(statement, source, params, given)
    count = 1
    for values in axes.values():
        count *= len(values)
    if count > MOST:
        raise UsageError(f"a grid of {count} variants; give shorter lists, for {MOST} at most")
    return [_variant(source, statement, settings, params, tuple(zip(axes, chosen, strict=True)))
            for chosen in itertools.product(*axes.values())]  # fmt: skip


def default_statement(file: syntax.File) -> syntax.Relax | None:
    """The last `relax QUANTITY`, of a quantity whose knobs are varied."""
    known = [item for item in file.items if isinstance(item, syntax.Relax) and item.quantity in AXES]
    return known[-1] if known else None


def _axes(
    statement: syntax.Relax | None, source: Source, params: set[str], given: Mapping[str, Sequence[str]]
) -> dict[str, Sequence[str]]:
    knobs = AXES[statement.quantity] if statement is not None and statement.quantity is not None else {}
    axes: dict[str, Sequence[str]] = {}
    for knob, values in knobs.items():
        written = _written(statement, knob, source)
        if knob not in given and (written is None or written not in params):
            axes[knob] = tuple(dict.fromkeys([*values, *([written] if written is not None else [])]))
    for name, chosen in given.items():
        quantity = None if statement is None else statement.quantity
        if name not in params and name not in (KNOBS[quantity].parameters if quantity is not None else ()):
            known = ", ".join(sorted({*params, *knobs}))
            raise UsageError(
                f"--grid {name}: no param, and no statement of `relax` has it as a knob ({known or 'none'})"
            )
        axes[name] = tuple(dict.fromkeys(chosen))
    return axes


def _written(statement: syntax.Relax | None, knob: str, source: Source) -> str | None:
    clause = _clause(statement, knob)
    return None if clause is None else " ".join(source.text[clause.value.span.start : clause.value.span.end].split())


def _clause(statement: syntax.Relax | None, knob: str) -> syntax.Clause | None:
    clauses = statement.clauses or () if statement is not None else ()
    return next((c for c in clauses if c.key == knob or {c.key, knob} == {"route", "topology"}), None)


def _variant(
    source: Source, statement: syntax.Relax | None, settings: Mapping[str, str], params: set[str],
    chosen: tuple[tuple[str, str], ...],
) -> Variant:  # fmt: skip
    of_params = {name: value for name, value in chosen if name in params}
    knobs = [(name, value) for name, value in chosen if name not in params]
    text = _rewritten(source, statement, knobs) if statement is not None else source.text
    return Variant(chosen, Source(source.name, text), {**settings, **of_params})


IDLE = {("compress", "none"), ("delay", "0"), ("route", "all")}
"""What a statement without the knob means anyway."""


def _rewritten(source: Source, statement: syntax.Relax, knobs: Sequence[tuple[str, str]]) -> str:
    """The statement with these knobs in place of its own."""
    changed = dict(knobs)
    kept = [c for c in statement.clauses or () if not any(_clause(statement, name) is c for name in changed)]
    if changed.get("compress") == "none":
        kept = [c for c in kept if c.key != "feedback"]  # which has no meaning then
    written = [source.text[c.span.start : c.span.end].rstrip(",; \n") for c in kept]
    written += [f"{name} = {value}" for name, value in knobs if (name, value) not in IDLE]
    head_end = _head_end(source, statement)
    head = source.text[statement.span.start : head_end].rstrip()
    body = f" {{ {', '.join(written)} }}" if written else ""
    return source.text[: statement.span.start] + head + body + source.text[statement.span.end :]


def _head_end(source: Source, statement: syntax.Relax) -> int:
    """Where the braces begin."""
    if statement.clauses is None:
        return statement.span.end
    after = statement.selector.span.end if statement.selector is not None else statement.target_span.end
    return source.text.index("{", after)


def parsed_grid(written: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`--grid NAME=V1,V2` options. A comma within parentheses separates nothing. Raise UsageError for one without
    values."""
    found = {}
    for option in written:
        name, equals, values = option.partition("=")
        split = tuple(_split(values))
        if not equals or not name.strip() or not split:
            raise UsageError(f"--grid takes NAME=VALUE,VALUE, such as --grid width=4bit,8bit, but got {option!r}")
        found[name.strip()] = split
    return found


def _split(values: str) -> Iterator[str]:
    depth, part = 0, ""
    for letter in values + ",":
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
            continue
        depth += (letter == "(") - (letter == ")")
        part += letter
