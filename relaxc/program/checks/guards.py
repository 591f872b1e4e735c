"""Does everyone know, before an iteration, which blocks run in it?"""

from __future__ import annotations

from relaxc.language.reading import CONDITIONS, no_condition, wrong_period
from relaxc.language.report import Report
from relaxc.program.agreement import LOCAL
from relaxc.program.checks.judged import Judged, place
from relaxc.program.ir import Apply, Constant, Every, Optimizer, Read, within
from relaxc.program.shapes import Shape, form_of


def check_guards(judged: Judged, report: Report) -> None:
    for statement in judged.statements:
        if isinstance(statement, Every):
            _period(judged, statement, report)


def _period(judged: Judged, every: Every, report: Report) -> None:
    form = form_of(every.period, judged.forms)
    if form.shape is not Shape.NUMBER:
        report.error("RX0311", f"a period that depends on {_first(judged, every, late=False)}", place(every),
                     "it is not known before the iteration",
                     "compute it from t, workers, constants and states that are numbers")  # fmt: skip
    elif judged.agreements.periods.get(every.block) is LOCAL:
        report.error("RX0310", "a block that not every worker would reach", place(every),
                     "the period differs between workers",
                     "leave rank, own() and what was mixed out of it")  # fmt: skip
    elif form.late:
        report.error("RX0311", f"a period that depends on {_first(judged, every, late=True)}", place(every),
                     "it is read at optimizer.step(), too late to choose what runs",
                     "compute it from t, workers, constants and states that depend on nothing else")  # fmt: skip
    else:
        _number(judged, every, report)


def _number(judged: Judged, every: Every, report: Report) -> None:
    """What a let stands for; what the header itself says was seen before."""
    value, seen = every.period, False
    while isinstance(value, Read) and value.name in judged.lets:
        value, seen = judged.lets[value.name].value, True
    if not seen:
        return
    span = place(every.period)
    if isinstance(value, Apply) and value.function in CONDITIONS:
        no_condition(span.text, span, report)
    elif isinstance(value, Constant) and (wrong := wrong_period(every.how, value.value)) is not None:
        report.error("RX0211", f"a period of {value.value:g} iterations", span, *wrong)


def _first(judged: Judged, every: Every, late: bool) -> str:
    """What of the period is to blame."""
    for e in within(every.period):
        form = form_of(e, judged.forms)
        if late and isinstance(e, Optimizer):
            return f"`optimizer.{e.name}`"
        if isinstance(e, Read) and (form.late if late else form.shape is not Shape.NUMBER):
            return f"`{e.name}`"
    return "what is measured on a tensor"
