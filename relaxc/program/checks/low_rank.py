"""Is an exchange of low rank one of a tensor, and used in the iteration that begins it? It is two exchanges, the second
of which needs the first one's result: nothing carries that on while the body is elsewhere."""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place
from relaxc.program.facts import of_the_launch
from relaxc.program.ir import After, Exchange
from relaxc.program.shapes import Shape, form_of


def check_low_rank(judged: Judged, report: Report) -> None:
    for e in judged.exchanges():
        if e.rank and form_of(e.value, judged.forms).shape < Shape.TENSOR:
            report.error("RX0380", "an exchange of low rank of a number", place(e), "only a matrix has a rank",
                         "leave compress out")  # fmt: skip
    for after in judged.statements:
        if not isinstance(after, After):
            continue
        for name in of_the_launch(after, judged.lets):
            for part in judged.parts(judged.lets[name].value):
                if isinstance(part, Exchange) and part.rank:
                    report.error("RX0381", "an exchange of low rank can't land late", place(part),
                                 "it is two exchanges, of which the second needs the first one's result",
                                 "use it in the iteration that begins it, or take another codec")  # fmt: skip
