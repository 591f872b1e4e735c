"""The body of an algorithm with the arguments of one use: are its codecs, periods, delays and numbers such?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaxc.language import format, syntax
from relaxc.language.diagnostics import Diagnostic, Label
from relaxc.language.functions import FUNCTIONS, PERIODS, Where, arity
from relaxc.language.names import parts
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.sites import Site, roles, sites
from relaxc.language.spec import Argument, Async, Period, Use
from relaxc.language.values import ARITHMETIC, numeric
from relaxc.language.words import clipped


def check_values(use: Use, report: Report) -> None:
    """Reports what is wrong with the body for these arguments."""
    given = {argument.name: argument for argument in use.arguments}
    for site in sites(use.definition.body):
        named = dict.fromkeys(part.name for part in parts(site.value) if isinstance(part, syntax.Name))
        arguments = [given[name] for name in named if name in given]
        found = Report(notes=tuple(f"`{a.name}` is {_shown(a)} in `{clipped(use.title)}`" for a in arguments))
        _site(site, Reader(use.names, given, found), found)
        for error in found.errors:
            report.take(_moved(error, arguments, use))


def _moved(error: Diagnostic, arguments: Sequence[Argument], use: Use) -> Diagnostic:
    """A mistake in a body of the library is shown where the user wrote the argument that it comes from."""
    ours = next((a.span for a in arguments if a.span.source is use.span.source), None)
    if ours is None or error.labels[0].span.source is use.span.source:
        return error
    return replace(error, labels=(Label(ours, error.labels[0].text), *error.labels))


def _site(site: Site, reader: Reader, report: Report) -> None:
    before = report.mistakes
    for role, name in roles(site):
        if role == "number":
            _number(name, reader, report)
    if report.mistakes > before or site.kind == "number":
        return
    if site.kind == "period":
        _period(site.value, reader)
    else:
        reader.value(site.kind, site.value)


def _number(name: syntax.Name, reader: Reader, report: Report) -> None:
    """Of a parameter or param that is computed with."""
    argument = reader.given.get(name.name)
    if name.name in reader.constants:
        value = reader.constants[name.name]
        if value is not None and numeric(value) is None:
            _no_number(name, clipped(format.expression(value)), report)
    elif argument is not None and isinstance(argument.value, Async):
        _no_number(
            name,
            _shown(argument),
            report,
            "what is computed with is a number of iterations; async is for a plain delay",
        )
    elif argument is not None:
        _no_number(name, _shown(argument), report)


def _no_number(name: syntax.Name, shown: str, report: Report, help_: str | None = None) -> None:
    message = f"`{name.name}` is {shown}, which is not a number"
    report.error("RX0209", message, name.span, "can't be computed with", help_)


def _shown(argument: Argument) -> str:
    value = argument.value
    if isinstance(value, Period) and value.how == "number":
        return clipped(format.expression(value.value))
    if isinstance(value, Period):
        return f"{value.how}({clipped(format.expression(value.value))})"
    return "none" if value is None else clipped(str(value))


def _period(e: syntax.Expression, reader: Reader) -> None:
    """A period of constants is read now; one that depends on training is not."""
    if all(_is_constant(part, reader) for part in parts(e)):
        reader.period(e)


def _is_constant(part: syntax.Expression, reader: Reader) -> bool:
    match part:
        case syntax.Name(name=name):
            return name in reader.constants or name in reader.given
        case syntax.Call(function=function):
            return function in PERIODS or (function in FUNCTIONS and arity(function, Where.CONSTANT) is not None)
        case syntax.Binary(operator=operator):
            return operator in ARITHMETIC
        case syntax.Unary(operator=operator):
            return operator == "-"
    return not isinstance(part, syntax.Member)
