"""From the value of `compress` to a codec with all its arguments."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from relaxc.language import format, library, low_rank, syntax
from relaxc.language.names import parts
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse, Names, Value
from relaxc.language.values import fold, numeric, plain, whole
from relaxc.language.vocabulary import ROUNDINGS, TOP, TOPOLOGIES
from relaxc.language.words import clipped, did_you_mean, listed
from relaxc.wire.layout import LARGEST_BLOCK

BY_WIDTH: dict[float, tuple[str, tuple[tuple[str, Value], ...]]] = {
    1: ("onebit", (("block", 2048),)),
    2: ("minmax", (("bits", 2), ("block", 512))),
    4: ("minmax", (("bits", 4), ("block", 512))),
    8: ("minmax", (("bits", 8), ("block", 512))),
}
"""What 1bit, 2bit, 4bit and 8bit stand for."""

AUTO = "auto"
"""For a number of a codec with states: it is 0 in its body, which chooses one then."""

NOTHING_TO_CHOOSE_BY = (
    "compile it with them: relaxc compile SPEC --model M --sample S --network '1Gbps, 200us' --workers 4, "
    "or write a codec; `auto` must stand in the statement itself, not in a param"
)

WIDEST = 8
"""Bits of the widest field of whole numbers."""

Defined = Mapping[str, syntax.Codec]


def codec(e: syntax.Expression, names: Names, report: Report) -> CodecUse | None:
    """The codec that the folded expression `e` names, one of the file's before one of the library's; None for full
    precision and after a mistake, which is reported."""
    match e:
        case syntax.Quantity(unit="bit"):
            return _by_width(e, report)
        case syntax.Name():
            return None if e.name == "none" else _named(e.name, (), (), e, names, report)
        case syntax.Call():
            return _named(e.function, e.arguments, e.keywords, e, names, report)
        case _:
            _no_codec(e, report)
            return None


def by_default(definition: syntax.Codec, names: Names, report: Report) -> CodecUse | None:
    """The codec without arguments; None where it needs one, and after a mistake."""
    if any(p.default is None for p in definition.parameters):
        return None
    place = Span(definition.span.source, definition.span.start, definition.span.start + len("codec"))
    return _named(definition.name, (), (), syntax.Name(place, definition.name), names, report)


def decodes_near(use: CodecUse) -> bool:
    """Whether a receiver needs a value of its own to decode: `receive near y`."""
    return any(isinstance(s, syntax.Receive) and s.near is not None for s in use.definition.body)


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
    defaults = {p.name: plain(p.default) for p in definition.parameters if p.default is not None}
    return CodecUse(definition, tuple((defaults | dict(given)).items()), e.span)


def _no_codec(e: syntax.Expression, report: Report) -> None:
    shown = clipped(format.expression(e))
    help_ = "write a codec such as 8bit, fp16 or minmax(4, block = 256)"
    if isinstance(e, syntax.Number) and e.value in BY_WIDTH:
        help_ = f"write {shown}bit"
    elif isinstance(e, syntax.String):
        help_ = "write the codec's name without quotes"
    report.error("RX0202", f"`{shown}` is not a codec", e.span, help=help_)


# --- codecs with a name


Arguments = tuple[syntax.Expression, ...]
Keywords = tuple[syntax.Keyword, ...]


def _named(
    name: str, given: Arguments, keywords: Keywords, e: syntax.Expression, names: Names, report: Report
) -> CodecUse | None:
    definition = names.codecs.get(name)
    if definition is None and name == AUTO:
        label = "a model, a network and a number of workers say which codec pays"
        report.error("RX0242", "`compress = auto` has nothing to choose by", e.span, label, NOTHING_TO_CHOOSE_BY)
        return None
    definition = definition or (low_rank.DEFINITION if name == low_rank.NAME else library.codec(name))
    if definition is None:
        place = Span(e.span.source, e.span.start, e.span.start + len(name)) if isinstance(e, syntax.Call) else e.span
        label = "a topology, which is for mixing weights" if name in TOPOLOGIES else ""
        report.error("RX0202", f"no codec `{clipped(name)}`", place, label, _codec_help(name, names.codecs))
        return None
    arguments = _arguments(definition, given, keywords, e, names, report)
    return None if arguments is None else CodecUse(definition, arguments, e.span)


def _codec_help(name: str, defined: Defined) -> str:
    known = sorted({*library.codecs(), *defined, "none", low_rank.NAME})
    return did_you_mean(name, [*known, AUTO]) or f"codecs are 8bit, 4bit, 2bit, 1bit, {listed(known, 'and')}"


def _arguments(
    definition: syntax.Codec, given: Arguments, keywords: Keywords, e: syntax.Expression, names: Names, report: Report
) -> tuple[tuple[str, Value], ...] | None:
    before = report.mistakes
    kinds = kinds_of(definition)
    values: dict[str, Value | None] = {}
    for name, written in _bound(definition, given, keywords, e, report):
        if kinds[name] == "number" and _follows(definition, written):
            values[name] = AUTO
            continue
        values[name] = READ[kinds[name]](definition.name, written, report)
        if kinds[name] == "number" and _has_states(definition):
            _refuse_zero(name, written, report)
    for parameter in definition.parameters:
        if parameter.name not in values:
            values[parameter.name] = _default(definition, parameter, kinds[parameter.name], e, names, report)
    if report.mistakes > before:
        return None
    return tuple((p.name, value) for p in definition.parameters if (value := values[p.name]) is not None)


def _follows(definition: syntax.Codec, written: syntax.Expression) -> bool:
    """Whether a number is left to the codec, which has states to find it by."""
    return _has_states(definition) and isinstance(written, syntax.Name) and written.name == AUTO


def _has_states(definition: syntax.Codec) -> bool:
    return any(isinstance(s, syntax.State) for s in definition.body)


def _refuse_zero(name: str, written: syntax.Expression, report: Report) -> None:
    """In the body 0 stands for auto."""
    value = numeric(written)
    if value is not None and value <= 0:
        report.error(
            "RX0208", f"{name} is {_shown(written)}", written.span, "not above 0", f"write {name} = auto, or a number"
        )


def _bound(
    definition: syntax.Codec, given: Arguments, keywords: Keywords, e: syntax.Expression, report: Report
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
    definition: syntax.Codec,
    parameter: syntax.Parameter,
    kind: str,
    e: syntax.Expression,
    names: Names,
    report: Report,
) -> Value | None:
    if parameter.default is None:
        report.error(
            "RX0107", f"{definition.name} needs `{parameter.name}`", e.span, help=f"write {parameter.name} = ..."
        )
        return None
    params = names.params if names.codecs.get(definition.name) is definition else {}
    value = fold(parameter.default, params, report)
    return None if value is None else READ[kind](definition.name, value, report)


# --- what the parameters of a codec are for


def kinds_of(definition: syntax.Codec) -> dict[str, str]:
    """width, part, block, rounding, rank or number for each parameter, by where the body names it."""
    if definition is low_rank.DEFINITION:
        return {low_rank.RANK: "rank"}
    kinds = {p.name: "number" for p in definition.parameters}
    for statement in definition.body:
        for kind, e in _special(statement):
            if isinstance(e, syntax.Name) and e.name in kinds:
                kinds[e.name] = kind
    return kinds


def _special(s: syntax.CodecStatement) -> Iterator[tuple[str, syntax.Expression | None]]:
    match s:
        case syntax.Per():
            yield "block", s.size
        case syntax.Send():
            yield "part" if s.wire.name == TOP else "width", s.wire.width
            yield from _roundings(s.value)
        case syntax.Let() | syntax.Receive() | syntax.Guard() | syntax.Assign():
            yield from _roundings(s.value)


def _roundings(e: syntax.Expression) -> Iterator[tuple[str, syntax.Expression]]:
    for part in parts(e):
        if isinstance(part, syntax.Call) and part.function == "round" and len(part.arguments) == 2:
            yield "rounding", part.arguments[1]


def _width(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    if isinstance(e, syntax.Number) or (isinstance(e, syntax.Quantity) and e.unit == "bit"):
        if e.value.is_integer() and 1 <= e.value <= WIDEST:
            return int(e.value)
        report.error(
            "RX0201", f"no {format.number(e.value)}bit {codec_name}", e.span, f"a field has 1 to {WIDEST} bits",
            f"use a whole number from 1 to {WIDEST}",
        )  # fmt: skip
    else:
        report.error("RX0201", f"`{_shown(e)}` is not a width", e.span, help="write it as 8 or 8bit")
    return None


def _part(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    """Of the elements of a block: a share, written in percent or below 1, or a count."""
    share = isinstance(e, syntax.Quantity) and e.unit == "%"
    value = numeric(e)
    if value is None or not (share or isinstance(e, syntax.Number)):
        report.error(
            "RX0236", f"`{_shown(e)}` is no part of a block", e.span, help="write a share or a count: 1% or 32"
        )
        return None
    if value > 0 and (value < 1 if share else value < 1 or value.is_integer()):
        return whole(value)
    label = "a share is above 0% and below 100%" if share else "a count is a whole number from 1 up"
    report.error(
        "RX0236", f"{_shown(e)} of the elements of a block", e.span, label, "write a share or a count: 1% or 32"
    )
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
    if e.value > LARGEST_BLOCK:
        label = "a block is encoded in one piece, which has to fit in cache"
        report.error(
            "RX0204", f"a block of {_shown(e)} elements is too large", e.span, label, f"use at most {LARGEST_BLOCK}"
        )
        return None
    return int(e.value)


def _rounding(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    if isinstance(e, syntax.Name) and e.name in ROUNDINGS:
        return e.name
    help_ = did_you_mean(_shown(e), ROUNDINGS) or "use nearest or stochastic"
    report.error("RX0205", f"no rounding `{_shown(e)}`", e.span, help=help_)
    return None


def _number(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    value = numeric(e)
    if value is None:
        report.error("RX0208", f"`{_shown(e)}` is not an argument of {codec_name}", e.span, help="write a number")
        return None
    return whole(value)


def _rank(codec_name: str, e: syntax.Expression, report: Report) -> Value | None:
    value = numeric(e)
    if value is not None and value.is_integer() and 1 <= value <= low_rank.LARGEST:
        return int(value)
    report.error("RX0208", f"no {codec_name} of rank {_shown(e)}", e.span,
                 f"not a whole number from 1 to {low_rank.LARGEST}", "write lowrank(4)")  # fmt: skip
    return None


READ: dict[str, Callable[[str, syntax.Expression, Report], Value | None]] = {
    "width": _width,
    "part": _part,
    "block": _block,
    "rounding": _rounding,
    "number": _number,
    "rank": _rank,
}


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
