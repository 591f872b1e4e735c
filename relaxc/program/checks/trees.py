"""Is each relay one of plain values along a tree? Along a circle a value would come back to who sent it."""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place
from relaxc.program.codec import EXACT
from relaxc.program.ir import Exchange
from relaxc.topology.trees import never_a_tree

NOT_BUILT = "in the language, but not in this version"


def check_trees(judged: Judged, report: Report) -> None:
    for e in judged.exchanges():
        if e.kind == "relay":
            _relay(judged, e, report)


def _relay(judged: Judged, e: Exchange, report: Report) -> None:
    assert e.topology is not None
    if judged.is_code(e.value) or e.codec != EXACT:
        report.error("RX0190", "a relay of codes is not built yet", place(e), NOT_BUILT, "relay the value as it is")
    elif (why := never_a_tree(e.topology)) is not None:
        report.error("RX0365", f"a relay goes along a tree, and {why}", place(e),
                     "a value would come round and be counted again",
                     'use chain, star, or edges("file") with one path between any two workers')  # fmt: skip
