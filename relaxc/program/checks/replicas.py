"""Does what believes to know the neighbours hear each of their messages?

A state that adds up codes (s += decode(q), s += mix(q)) is a replica of what somebody else holds, and is right only
where no message is missed and none comes out of order. In an `after` whose exchanges are asynchronous one that is
missed, or whose partner is gone, leaves it wrong for ever.
"""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place
from relaxc.program.ir import ASYNC, After, Assign, Decode, Exchange, Expression, flattened


def check_replicas(judged: Judged, report: Report) -> None:
    states = {state.name for state in judged.body.states}
    for after in judged.statements:
        if isinstance(after, After) and after.delay == ASYNC:
            for statement in flattened(after.body):
                if isinstance(statement, Assign) and statement.name in states and adds_up_codes(judged, statement):
                    report.error("RX0374", f"`{statement.name}` adds up codes that arrive at any time, or never",
                                 place(statement), "a message that is missed leaves it wrong for ever",
                                 "send weights themselves, by a codec that decodes near the receiver's own value, or "
                                 "take a delay that is a number")  # fmt: skip


def adds_up_codes(judged: Judged, statement: Assign) -> bool:
    """Whether the statement adds what was decoded, of one's own code or of others', to what the name had."""
    beside = judged.beside(statement.value)
    return statement.name in beside and any(_is_decoded(judged, part) for part in judged.parts(statement.value))


def _is_decoded(judged: Judged, e: Expression) -> bool:
    return isinstance(e, Decode) or (isinstance(e, Exchange) and (judged.is_code(e.value) or _lossy(e)))


def _lossy(e: Exchange) -> bool:
    return e.kind == "mix" and e.codec is not None and not e.codec.cast
