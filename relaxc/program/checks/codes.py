"""Is each code sent, and each exchange one of what can be summed?"""

from __future__ import annotations

from collections import Counter

from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.program.checks.judged import Judged, place, values
from relaxc.program.codec import EXACT
from relaxc.program.ir import Codec, Decode, Encode, Exchange, Expression, Let, Read, Reduce, children, within
from relaxc.program.shapes import Shape, form_of
from relaxc.wire.routes import DEFAULT_ROUTE

NOT_BUILT = "in the language, but not in this version"
UNSENT = "send it by mean, sum, mix or push; without one there is nothing to encode for"


def check_codes(judged: Judged, report: Report) -> None:
    for state in judged.body.states:
        _visit(judged, state.initial, False, report)
    for statement in judged.statements:
        for value in values(statement):
            _visit(judged, value, isinstance(statement, Let) and isinstance(value, Encode), report)
    _sent_once(judged, report)


def _visit(judged: Judged, e: Expression, code_allowed: bool, report: Report) -> None:
    if judged.is_code(e) and not code_allowed:
        help_ = "a code is sent, by mean, sum, mix or push, or decoded: decode(code)"
        report.error("RX0315", "a code can't be computed with", place(e), "the bytes that are sent", help_)
    for part in children(e):
        _visit(judged, part, isinstance(e, Exchange | Decode), report)
    match e:
        case Exchange():
            _exchange(judged, e, report)
        case Encode(value=value):
            _tensor(judged, value, place(e), report)
        case Decode(code=Encode()):
            report.error("RX0319", "a code is decoded and never sent", place(e), "", UNSENT)
        case Decode(code=code) if not judged.is_code(code):
            report.error("RX0315", "only a code can be decoded", place(e), "", "make one: let code = encode(x, 8bit)")
        case Reduce(argument=argument) if form_of(argument, judged.forms).shape < Shape.TENSOR:
            report.error("RX0323", "the norm of a number", place(e), "a norm is over the elements of a tensor",
                         "take abs(x) of a number")  # fmt: skip


def _exchange(judged: Judged, e: Exchange, report: Report) -> None:
    if form_of(e.value, judged.forms).shape < Shape.TENSOR:
        _as_it_is(e, report)
        return
    code = judged.encode_of(e.value)
    codec = e.codec if code is None else code.codec
    if e.kind in ("mean", "sum") and codec is not None and codec.near is not None:
        help_ = "use it with mix, as in `weight += mix(code, topology) - decode(code)`, or take another codec"
        text = f"the {e.kind} of codes that are decoded near the receiver's own value"
        report.error("RX0318", text, place(e), f"no two workers would make the same of {codec.text}", help_)


def _as_it_is(e: Exchange, report: Report) -> None:
    """A number has nothing that a codec could leave out, nor shares for the hops of a route."""
    if e.codec is None or (e.codec == EXACT and e.route in ("", DEFAULT_ROUTE)):
        return
    knob = "compress" if e.codec != EXACT else "route"
    report.error("RX0363", f"`{knob}` has no meaning for a number, which is sent as it is", place(e),
                 "one number for each parameter", f"delete `{knob}`")  # fmt: skip


def _tensor(judged: Judged, value: Expression, span: Span, report: Report) -> None:
    if form_of(value, judged.forms).shape < Shape.TENSOR:
        report.error("RX0190", "encoding a number is not built yet", span, NOT_BUILT,
                     "exchange the number itself, which is sent as it is")  # fmt: skip


def _sent_once(judged: Judged, report: Report) -> None:
    sent = Counter(name for e in judged.exchanges() if (name := _name(e.value)) is not None)
    decoded = _decoded(judged)
    for name, let in judged.lets.items():
        if isinstance(let.value, Encode):
            _one_code(let, let.value.codec, sent[name], name in decoded, report)
    seen: Counter[str] = Counter()
    for e in judged.exchanges():
        name = _name(e.value)
        if name is None or not judged.is_code(e.value):
            continue
        seen[name] += 1
        if seen[name] == 2:
            report.error("RX0190", f"sending the code `{name}` twice is not built yet", place(e), NOT_BUILT,
                         "encode the value again for the second exchange")  # fmt: skip


def _name(e: Expression) -> str | None:
    return e.name if isinstance(e, Read) else None


def _decoded(judged: Judged) -> set[str | None]:
    parts = (e for s in judged.statements for value in values(s) for e in within(value))
    return {_name(e.code) for e in parts if isinstance(e, Decode)}


def _one_code(let: Let, codec: Codec, sent: int, decoded: bool, report: Report) -> None:
    if not sent:
        report.error("RX0319", f"the code `{let.name}` is never sent", place(let), "", UNSENT)
    elif not decoded and codec.biased:
        report.warn("RX0331", f"what {codec.text} loses is lost for good", place(let),
                    "a biased codec without feedback",
                    f"keep the loss in a state: error = wanted - decode({let.name})")  # fmt: skip
