"""Does what is mixed come to an average?"""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, beside_exchanges, place
from relaxc.program.ir import Assign, Exchange, Expression, Read
from relaxc.topology.kinds import changes


def check_mixing(judged: Judged, report: Report) -> None:
    states = {state.name for state in judged.body.states}
    for statement in judged.statements:
        if isinstance(statement, Assign) and statement.name in states:
            _added_up(judged, statement, report)
    _gradient_averaged(judged, report)


def _added_up(judged: Judged, statement: Assign, report: Report) -> None:
    """s = a * s + mix(..): the sum over time is the mix of a sum only where the matrix stays the same."""
    parts = list(beside_exchanges(statement.value))
    if not any(isinstance(p, Read) and p.name == statement.name for p in parts):
        return
    for part in parts:
        mix = _mix(judged, part)
        if mix is not None and mix.topology is not None and changes(mix.topology):
            report.error("RX0314", f"`{statement.name}` adds up mixes over {mix.topology}, which changes",
                         place(statement), "the sum of mixes over different neighbours is the mix of nothing",
                         "use a topology that never changes, such as ring, torus or exponential")  # fmt: skip
            return


def _mix(judged: Judged, e: Expression) -> Exchange | None:
    """A mix, or a let that is the mix of a code."""
    if isinstance(e, Exchange) and e.kind == "mix":
        return e
    if isinstance(e, Read) and e.name in judged.lets:
        value = judged.lets[e.name].value
        if isinstance(value, Exchange) and value.kind == "mix" and judged.is_code(value.value):
            return value
    return None


def _gradient_averaged(judged: Judged, report: Report) -> None:
    mixed: Exchange | None = None
    for e in judged.exchanges():
        sources = judged.sources(e.value)
        if "weight" in sources or (e.kind != "mix" and "grad" in sources):
            return
        if e.kind == "mix" and "grad" in sources:
            mixed = mixed or e
    if mixed is not None:
        report.warn("RX0332", "the gradient is mixed but never averaged", place(mixed),
                    "replicas drift apart, and nothing pulls them together",
                    "mix weights too, or take mean(grad)")  # fmt: skip
