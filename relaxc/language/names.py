"""Params: their values, from the file or from `--set`, and who may be called what."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from relaxc.language import format, library, syntax
from relaxc.language.diagnostics import Label, SpecError
from relaxc.language.parse import parse_expression
from relaxc.language.places import name_span
from relaxc.language.report import Report
from relaxc.language.source import Source, Span
from relaxc.language.spec import Value
from relaxc.language.values import fold, plain
from relaxc.language.vocabulary import BUILT_IN
from relaxc.language.words import clipped, did_you_mean, listed


@dataclass(slots=True)
class Scope:
    """The params of a file. A value is None where its definition has a mistake."""

    values: dict[str, syntax.Expression | None] = field(default_factory=dict)
    places: dict[str, Span] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    given: set[str] = field(default_factory=set)

    def use(self, e: syntax.Expression) -> Sequence[str]:
        """Takes note of the params that `e` names; what to say about their values where one is wrong."""
        names = [name for name in dict.fromkeys(named(e)) if name in self.values]
        self.used.update(names)
        return [note for name in names if (note := self._note(name))]

    def _note(self, name: str) -> str:
        value = self.values[name]
        if value is None:
            return ""
        origin = (
            "by --set"
            if name in self.given
            else f"in line {self.places[name].source.position(self.places[name].start)[0]}"
        )
        return f"`{name}` is {clipped(format.expression(value))}, set {origin}"


def parts(e: syntax.Expression) -> Iterator[syntax.Expression]:
    """An expression and all that it is made of, without recursion."""
    pending: list[syntax.Expression] = [e]
    while pending:
        part = pending.pop()
        yield part
        match part:
            case syntax.Unary(operand=operand):
                pending.append(operand)
            case syntax.Binary(left=left, right=right):
                pending += (right, left)
            case syntax.Call(arguments=arguments, keywords=keywords):
                pending += [*arguments, *(k.value for k in keywords)]


def named(e: syntax.Expression) -> Iterator[str]:
    """The names in an expression."""
    return (part.name for part in parts(e) if isinstance(part, syntax.Name))


def scope(file: syntax.File, settings: Mapping[str, str], report: Report) -> Scope:
    """The params of `file` in text order, `settings` (text of each by name) replacing values."""
    made = Scope()
    defined = [item for item in file.items if isinstance(item, syntax.Param)]
    names = [param.name for param in defined]
    overrides = _overrides(settings, names, report)
    for param in defined:
        if _may_define(param, made, report):
            made.places[param.name] = param.span
            written = overrides.get(param.name, param.value)
            made.values[param.name] = None if written is None else _value(written, made, names, report)
    made.given.update(overrides)
    return made


def unused(made: Scope, report: Report) -> None:
    for name, value in made.values.items():
        if value is not None and name not in made.used:
            report.warn(
                "RX0110",
                f"the param `{name}` is never used",
                made.places[name],
                help="delete it, or use it in a clause",
            )


def listing(made: Scope) -> tuple[tuple[str, Value], ...]:
    return tuple((name, plain(value)) for name, value in made.values.items() if value is not None)


def _may_define(param: syntax.Param, made: Scope, report: Report) -> bool:
    name, span = param.name, name_span(param, "param")
    if name in made.values:
        first = Label(made.places[name], "first defined here")
        report.error("RX0106", f"`{name}` is defined twice", span, "defined again", "choose another name", [first])
        return False
    if name in BUILT_IN or name in library.codecs():
        report.error(
            "RX0104", f"`{name}` is a word of the language", span, "can't be the name of a param", "choose another name"
        )
        return False
    return True


def _value(written: syntax.Expression, made: Scope, names: Sequence[str], report: Report) -> syntax.Expression | None:
    if not _only_above(written, made, names, report):
        return None
    with report.noting(made.use(written)):
        value = fold(written, made.values, report)
        return value if value is None or _is_value(value, report) else None


def _only_above(written: syntax.Expression, made: Scope, names: Sequence[str], report: Report) -> bool:
    """Whether the value uses no param that is defined here or later, so that params can't go in circles."""
    below = [name for name in named(written) if name in names and name not in made.values]
    for name in below:
        report.error("RX0105", f"`{name}` is used before its definition ends", written.span,
                     help="a param can use those defined above it")  # fmt: skip
    return not below


def _is_value(value: syntax.Expression, report: Report) -> bool:
    """A param is a number, a quantity, a string, a word or a codec with plain arguments."""
    parts = [value] if not isinstance(value, syntax.Call) else [*value.arguments, *(k.value for k in value.keywords)]
    wrong = [p for p in parts if isinstance(p, syntax.Call | syntax.Unary | syntax.Binary)]
    if isinstance(value, syntax.Call):
        wrong = [p for p in wrong if not isinstance(p, syntax.Call) or p.keywords or p.arguments]
    if wrong:
        report.error("RX0209", "not the value of a param", value.span, "a number, a word, a string or a codec is", None)
    return not wrong


def _overrides(settings: Mapping[str, str], names: list[str], report: Report) -> dict[str, syntax.Expression | None]:
    found: dict[str, syntax.Expression | None] = {}
    for name, text in settings.items():
        source = Source("--set", f"{name}={text}")
        if name not in names:
            help_ = did_you_mean(name, names) or (
                f"its params are {listed(names, 'and')}" if names else "it has no params"
            )
            report.error("RX0109", f"the spec has no param `{name}`", Span(source, 0, len(name)), help=help_)
            continue
        found[name] = _setting(source, len(name) + 1, report)
    return found


def _setting(source: Source, start: int, report: Report) -> syntax.Expression | None:
    try:
        return parse_expression(source, start)
    except SpecError as error:
        report.errors.extend(error.diagnostics)
        return None
