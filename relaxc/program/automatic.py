"""`auto` for a number of an algorithm: half of what its codec keeps (contraction.py).

That is the step towards the neighbours that the published values of CHOCO-SGD come to; at twice the contraction it
diverges.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import AUTO, Argument, CodecUse, Use
from relaxc.program.contraction import contraction
from relaxc.program.ir import Codec

SHARE = 0.5
HELP = "write a number, such as 0.4"
ANOTHER = "use another codec, such as 4bit, or one whose levels follow the values of a block"


def resolved(use: Use, lowered: Callable[[CodecUse], Codec | None], report: Report) -> Use:
    """`use` with a number for each `auto`."""
    wanted = [a for a in use.arguments if a.kind == "number" and a.value == AUTO]
    if not wanted:
        return use
    value = _value(use, wanted[0], lowered, report)
    return replace(use, arguments=tuple(replace(a, value=value) if a in wanted else a for a in use.arguments))


def _value(use: Use, wanted: Argument, lowered: Callable[[CodecUse], Codec | None], report: Report) -> float:
    codecs = [a for a in use.arguments if a.kind == "codec"]
    what = f"`{wanted.name} = auto` has no value here"
    if len(codecs) != 1:
        label = "it is half of what the codec keeps, and there is not one codec"
        report.error("RX0372", what, _place(use, wanted, wanted), label, HELP)
        return SHARE
    value = codecs[0].value
    codec = lowered(value) if isinstance(value, CodecUse) else None
    if codec is None:
        return SHARE
    if not (kept := contraction(codec)):
        why = f"{codec.text} loses more than there is" if kept is not None else f"what {codec.text} loses is no share"
        help_ = HELP if kept is None else ANOTHER
        report.error("RX0372", what, _place(use, codecs[0], wanted), why, help_)
    return SHARE * (kept or 1.0)


def _place(use: Use, *arguments: Argument) -> Span:
    """The first of these that the statement itself gives, or the statement."""
    statement = use.span
    ours = [a.span for a in arguments if a.span.source is statement.source and statement.start <= a.span.start]
    within = [span for span in ours if span.end <= statement.end]
    return within[0] if within else statement.first_line
