"""`compress = lowrank(r)` in an exchange: syntax -> IR."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from relaxc.language import syntax
from relaxc.language.low_rank import rank_of
from relaxc.language.spec import CodecUse, Feedback
from relaxc.program.ir import Exchange, Expression
from relaxc.wire.routes import DEFAULT_ROUTE

if TYPE_CHECKING:
    from relaxc.program.lower_expressions import Expressions


def low_rank(
    of: Expressions, e: syntax.Call, value: Expression, given: Mapping[str, syntax.Expression], use: CodecUse
) -> Exchange | None:
    """The exchange; None after a mistake, which is reported."""
    if e.function not in ("mean", "sum"):
        refuse_low_rank(of, e, f"a {e.function} of low rank")
        return None
    written = of.reader.feedback(given["feedback"]) if "feedback" in given else None
    if written is Feedback.BOTH:
        of.report.error("RX0382", "feedback = both in an exchange of low rank", of.place_of(e),
                        "nobody encodes a sum again", "use worker, or none")  # fmt: skip
    if of.route(given.get("route"), None, e) != DEFAULT_ROUTE:
        of.report.error("RX0382", "an exchange of low rank has no route", of.place_of(e),
                        "its factors are all-reduced", "leave route out")  # fmt: skip
    feedback = "none" if written is Feedback.NONE else "worker"
    place = of.places.next()
    return Exchange(e.function, value, None, feedback, DEFAULT_ROUTE, None, place, of.place_of(e), rank_of(use))


def refuse_low_rank(of: Expressions, e: syntax.Expression, what: str) -> None:
    of.report.error("RX0380", f"{what} is no sum that all take part in", of.place_of(e),
                    "lowrank stands in a mean or sum of a tensor: its factors are summed before they are multiplied",
                    "take a codec of levels, such as 4bit")  # fmt: skip
