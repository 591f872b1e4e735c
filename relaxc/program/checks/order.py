"""Do gradients, the step and weights come in an order that a training loop has?

A body is cut behind its last assignment to `grad`: what stands above is done when backward() returns, where neither the
learning rate nor the optimiser's own settings are to be read yet.
"""

from __future__ import annotations

from relaxc.language.diagnostics import Label
from relaxc.language.report import Report
from relaxc.program.agreement import phases_of
from relaxc.program.checks.judged import Judged, place, values
from relaxc.program.ir import Assign, Optimizer, Read, Statement, Step, within


def check_order(judged: Judged, report: Report) -> None:
    _weight_moves(judged, judged.statements, report)
    for phase in phases_of(judged.body.statements):
        _around_the_cut(judged.in_phase(phase), report)


def _around_the_cut(statements: list[Statement], report: Report) -> None:
    cut = max((n for n, s in enumerate(statements) if _assigns(s, "grad")), default=-1)
    if cut < 0:
        return
    _weight_before_grad(statements[:cut], statements[cut], report)
    for statement in statements[: cut + 1]:
        _reads_too_early(statement, statements[cut], report)


def _assigns(statement: Statement, name: str) -> bool:
    return isinstance(statement, Assign) and statement.name == name


def _weight_moves(judged: Judged, statements: list[Statement], report: Report) -> None:
    if not any(isinstance(s, Step) or _assigns(s, "weight") for s in statements):
        span, *runs = judged.body.places or (place(statements[0] if statements else Step()),)
        report.error("RX0316", "weights never change", span, "there is neither `step` nor an assignment to weight",
                     "add `step`, the user's optimiser", [Label(use, "run here") for use in runs])  # fmt: skip


def _weight_before_grad(before: list[Statement], grad: Statement, report: Report) -> None:
    first = next((s for s in before if isinstance(s, Step) or _assigns(s, "weight")), None)
    if first is not None:
        also = [Label(place(first), "weights change here")]
        report.error("RX0312", "weights change before the gradient is made", place(grad),
                     "backward has returned by then", "assign `grad` first", also)  # fmt: skip


def _reads_too_early(statement: Statement, cut: Statement, report: Report) -> None:
    for value in values(statement):
        for e in within(value):
            name = "lr" if isinstance(e, Read) and e.name == "lr" else None
            if isinstance(e, Optimizer):
                name = f"optimizer.{e.name}"
            if name is not None:
                also = [Label(place(cut), "grad is assigned here, before backward returns")]
                report.error("RX0317", f"`{name}` is read before the gradient is made", place(e),
                             "known at optimizer.step() only",
                             "read it below the last assignment to grad", also)  # fmt: skip
