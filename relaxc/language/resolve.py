"""What expressions written in an algorithm's body stand for in one use of it. For lowering: `check` has read each of
them already, so these find no mistake in a use that it made.

`e` is the expression, `use` the use whose body it stands in. None after a mistake, which is in `report`.
"""

from __future__ import annotations

from relaxc.language import syntax
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.spec import CodecUse, Feedback, Period, Use
from relaxc.language.values import numeric
from relaxc.topology.topology import Topology


def reader(use: Use, report: Report) -> Reader:
    return Reader(use.names, {argument.name: argument for argument in use.arguments}, report)


def codec_of(e: syntax.Expression, use: Use, report: Report) -> CodecUse | None:
    """The codec of `compress = e` or `encode(x, e)`; None for `none`, too."""
    return reader(use, report).codec(e)


def topology_of(e: syntax.Expression, use: Use, report: Report) -> Topology | None:
    """The graph of `mix(x, e)` or `own(e)`; edges("file") is read relative to the file that `e` stands in."""
    return reader(use, report).topology(e)


def feedback_of(e: syntax.Expression, use: Use, report: Report) -> Feedback | None:
    return reader(use, report).feedback(e)


def route_of(e: syntax.Expression, use: Use, report: Report) -> str | None:
    """One of wire/routes.ROUTES."""
    return reader(use, report).route(e)


def period_of(e: syntax.Expression, use: Use, report: Report) -> Period | None:
    """Of `every e`. Its number is an expression that may read t, states and parameters."""
    return reader(use, report).written_period(e)


def delay_of(e: syntax.Expression, use: Use, report: Report) -> int | None:
    """Of `after e` or `delay(x, e)`, in iterations: from 0 to reading.MAX_DELAY."""
    return reader(use, report).delay(e)


def length_of(e: syntax.Expression, use: Use, report: Report) -> int | None:
    """Of `phase name for e`, in runs of the enclosing block."""
    return reader(use, report).length(e)


def number_of(e: syntax.Expression, use: Use, report: Report) -> float | None:
    """The value of an expression of constants, parameters and params; 1% is 0.01, 8bit is 8."""
    return reader(use, report).number(e)


def constant_named(name: str, use: Use) -> float | None:
    """The number that a name of the body stands for: a parameter, or a param of the file. None where it stands for
    something else, a state or `weight` say."""
    value = reader(use, Report()).constants.get(name)
    return None if value is None else numeric(value)
