"""From the value of `compress` to a codec with all its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from relaxc.language import format, library, syntax
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse, Value
from relaxc.language.unbuilt import UNBUILT, refuse
from relaxc.language.vocabulary import ROUNDINGS
from relaxc.language.words import clipped, did_you_mean, listed

BY_WIDTH: dict[float, tuple[str, tuple[tuple[str, Value], ...]]] = {
    1: ("onebit", (("block", 2048),)),
    2: ("minmax", (("bits", 2), ("block", 512))),
    4: ("minmax", (("bits", 4), ("block", 512))),
    8: ("minmax", (("bits", 8), ("block", 512))),
}
"""What 1bit, 2bit, 4bit and 8bit stand for."""

WIDTHS = (2, 4, 8)
MAX_BLOCK = 2**20


def codec(e: syntax.Expression, local: frozenset[str], report: Report) -> CodecUse | None:
    """The codec that the folded expression `e` names; None for full precision and after a mistake, which is reported.

    `local` are the names of codecs that the file defines.
    """
    match e:
        case syntax.Quantity(unit="bit"):
            return _by_width(e, report)
        case syntax.Name():
            return None if e.name == "none" else _named(e.name, (), (), e, local, report)
        case syntax.Call():
            return _named(e.function, e.arguments, e.keywords, e, local, report)
        case _:
            _no_codec(e, report)
            return None


def _by_width(e: syntax.Quantity, report: Report) -> CodecUse | None:
    if e.value not in BY_WIDTH:
        shown = format.expression(e)
        report.error(
            "RX0201", f"no {shown} codec", e.span, "not a width that a codec has", "use 1bit, 2bit, 4bit or 8bit"
        )
        return None
    name, given = BY_WIDTH[e.value]
    definition = library.codec(name)
    assert definition is not None, f"specs/codecs/{name}.relax is part of the library"
    defaults = {p.name: _plain(p.default) for p in definition.parameters if p.default is not None}
    return CodecUse(definition, tuple((defaults | dict(given)).items()), e.span)


def _no_codec(e: syntax.Expression, report: Report) -> None:
    shown = clipped(format.expression(e))
    help_ = "write a codec such as 8bit, fp16 or minmax(4, block = 256)"
    if isinstance(e, syntax.Number) and e.value in BY_WIDTH:
        help_ = f"write {shown}bit"
    elif isinstance(e, syntax.String):
        help_ = "write the codec's name without quotes"
    report.error("RX0202", f"`{shown}` is not a codec", e.span, help=help_)


# --- codecs of the library


Arguments = tuple[syntax.Expression, ...]


def _named(
    name: str,
    given: Arguments,
    keywords: tuple[syntax.Keyword, ...],
    e: syntax.Expression,
    local: frozenset[str],
    report: Report,
) -> CodecUse | None:
    if name in local or refuse(report, f"codec {name}", e.span):
        return None  # a codec of the file is refused where it is defined
    definition = library.codec(name)
    if definition is None:
        place = Span(e.span.source, e.span.start, e.span.start + len(name)) if isinstance(e, syntax.Call) else e.span
        report.error("RX0202", f"no codec `{name}`", place, help=_codec_help(name))
        return None
    arguments = _arguments(definition, given, keywords, e, report)
    return None if arguments is None else CodecUse(definition, arguments, e.span)


def _codec_help(name: str) -> str:
    refused = [what.removeprefix("codec ") for what in UNBUILT if what.startswith("codec ")]
    known = [*library.codecs(), "none"]
    return (
        did_you_mean(name, [*known, *refused]) or f"codecs are 8bit, 4bit, 2bit, 1bit, {listed(sorted(known), 'and')}"
    )


def _arguments(
    definition: syntax.Codec,
    given: Arguments,
    keywords: tuple[syntax.Keyword, ...],
    e: syntax.Expression,
    report: Report,
) -> tuple[tuple[str, Value], ...] | None:
    before = len(report.errors)
    values: dict[str, Value | None] = {}
    for name, written in _bound(definition, given, keywords, e, report):
        values[name] = KINDS.get(name, _any)(definition.name, written, report)
    for parameter in definition.parameters:
        if parameter.name not in values:
            values[parameter.name] = _default(definition, parameter, e, report)
    if len(report.errors) > before:
        return None
    return tuple((p.name, value) for p in definition.parameters if (value := values[p.name]) is not None)


def _bound(
    definition: syntax.Codec,
    given: Arguments,
    keywords: tuple[syntax.Keyword, ...],
    e: syntax.Expression,
    report: Report,
) -> Iterator[tuple[str, syntax.Expression]]:
    """Which argument is for which parameter."""
    names = [p.name for p in definition.parameters]
    if len(given) > len(names):
        takes = f"takes {listed(names, 'and')}" if names else "takes no arguments"
        report.error(
            "RX0107", f"too many arguments for {definition.name}", given[len(names)].span, f"{definition.name} {takes}"
        )
    yield from zip(names, given, strict=False)
    taken = set(names[: len(given)])
    for keyword in keywords:
        if keyword.name not in names:
            help_ = did_you_mean(keyword.name, names) or (
                f"it takes {listed(names, 'and')}" if names else "it takes none"
            )
            report.error("RX0107", f"{definition.name} has no argument `{keyword.name}`", keyword.span, help=help_)
        elif keyword.name in taken:
            report.error("RX0107", f"`{keyword.name}` is given twice", keyword.span, help="delete one of the two")
        else:
            taken.add(keyword.name)
            yield keyword.name, keyword.value


def _default(
    definition: syntax.Codec, parameter: syntax.Parameter, e: syntax.Expression, report: Report
) -> Value | None:
    if parameter.default is None:
        report.error(
            "RX0107", f"{definition.name} needs `{parameter.name}`", e.span, help=f"write {parameter.name} = ..."
        )
        return None
    return _plain(parameter.default)


def _plain(default: syntax.Expression) -> Value:
    """A default of the library's codecs: a number or a word."""
    if isinstance(default, syntax.Number):
        return int(default.value) if default.value.is_integer() else default.value
    return format.expression(default)


# --- arguments, by the name of their parameter


def _bits(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    if isinstance(e, syntax.Number) or (isinstance(e, syntax.Quantity) and e.unit == "bit"):
        if e.value in WIDTHS:
            return int(e.value)
        help_ = "use 2, 4 or 8" + ("; one bit is the codec 1bit" if e.value == 1 else "")
        report.error(
            "RX0201", f"no {format.number(e.value)}bit {codec_name}", e.span, "not a width that this codec has", help_
        )
    else:
        report.error("RX0201", f"`{_shown(e)}` is not a width", e.span, help="write it as 8 or 8bit")
    return None


def _block(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    if not isinstance(e, syntax.Number):
        report.error(
            "RX0204", f"`{_shown(e)}` is not a block size", e.span, help="write a number of elements: block = 512"
        )
        return None
    if not e.value.is_integer() or e.value < 1:
        report.error(
            "RX0204", f"a block of {_shown(e)} elements", e.span, "not a whole number from 1 up", "write block = 512"
        )
        return None
    if e.value > MAX_BLOCK:
        label = "a block is encoded in one piece, which has to fit in cache"
        report.error(
            "RX0204", f"a block of {_shown(e)} elements is too large", e.span, label, f"use at most {MAX_BLOCK}"
        )
        return None
    return int(e.value)


def _rounding(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    if isinstance(e, syntax.Name) and e.name in ROUNDINGS:
        return e.name
    help_ = did_you_mean(_shown(e), ROUNDINGS) or "use nearest or stochastic"
    report.error("RX0205", f"no rounding `{_shown(e)}`", e.span, help=help_)
    return None


def _any(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    """Of a parameter that only the codec's body knows."""
    if isinstance(e, syntax.Number):
        return int(e.value) if e.value.is_integer() else e.value
    if isinstance(e, syntax.Name):
        return e.name
    report.error("RX0208", f"`{_shown(e)}` is not an argument of {codec_name}", e.span, help="write a number or a word")
    return None


KINDS: dict[str, Callable[[str, syntax.Expression, Report], Value | None]] = {
    "bits": _bits,
    "block": _block,
    "rounding": _rounding,
}


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
