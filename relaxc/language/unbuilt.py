"""What the grammar knows and this version can't do yet. Whoever builds one of them removes its line here."""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.language.source import Span

UNBUILT = {
    "clause phase": ("a phase in a relaxation", "write an algorithm with phases and `relax with` it"),
}


def refuse(report: Report, what: str, span: Span) -> bool:
    """Whether `what` is not built yet; if so that is an error at `span`."""
    if what not in UNBUILT:
        return False
    name, help_ = UNBUILT[what]
    report.error("RX0190", f"{name} is not built yet", span, "in the language, but not in this version", help_)
    return True
