"""`cluster { }`: the machines and links that a schedule is computed for."""

from __future__ import annotations

from collections.abc import Callable

from relaxc import units
from relaxc.language import format, syntax
from relaxc.language.diagnostics import Label
from relaxc.language.names import Scope
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Cluster
from relaxc.language.values import fold, numeric
from relaxc.language.words import clipped, did_you_mean, listed

KEYS = ("workers", "per_machine", "bandwidth", "inner", "latency")
EXAMPLE = "cluster { workers = 16, per_machine = 4, bandwidth = 10Gbps, latency = 50us }"


def cluster(file: syntax.File, scope: Scope, report: Report) -> Cluster | None:
    """What the file says of its cluster; None where it says nothing, or after a mistake, which is reported."""
    items = [item for item in file.items if isinstance(item, syntax.Cluster)]
    for again in items[1:]:
        first = Label(_header(items[0]), "first described here")
        report.error("RX0106", "the cluster is described twice", _header(again), "again", "delete one", [first])
    return _cluster(items[0], scope, report) if items else None


def _header(item: syntax.Cluster) -> Span:
    return Span(item.span.source, item.span.start, item.span.start + len("cluster"))


def _cluster(item: syntax.Cluster, scope: Scope, report: Report) -> Cluster | None:
    before = report.mistakes
    given = _clauses(item, report)
    found = {key: _read(clause, scope, report) for key, clause in given.items()}
    if "bandwidth" not in given:
        report.error("RX0107", "the cluster has no bandwidth", _header(item), help=f"write {EXAMPLE}")
    if report.mistakes > before:
        return None
    known = {key: value for key, value in found.items() if value is not None}
    workers, per_machine = known.get("workers"), known.get("per_machine", 1)
    if (absurd := units.wrong_workers(workers, per_machine)) is not None:
        place = given.get("per_machine") or given["workers"]
        report.error("RX0241", absurd, place.value.span, help="each machine has as many workers")
        return None
    return Cluster(
        known["bandwidth"], known.get("latency"), None if workers is None else int(workers), int(per_machine),
        known.get("inner"), _header(item),
    )  # fmt: skip


def _clauses(item: syntax.Cluster, report: Report) -> dict[str, syntax.Clause]:
    found: dict[str, syntax.Clause] = {}
    for clause in item.clauses:
        if clause.key not in KEYS:
            help_ = did_you_mean(clause.key, KEYS) or f"it has {listed(KEYS, 'and')}"
            report.error("RX0101", f"`{clause.key}` is not known of a cluster", clause.key_span, help=help_)
        elif clause.key in found:
            first = Label(found[clause.key].key_span, "first given here")
            report.error("RX0102", f"`{clause.key}` is given twice", clause.key_span, "given again",
                         "delete one of the two", [first])  # fmt: skip
        else:
            found[clause.key] = clause
    return found


def _read(clause: syntax.Clause, scope: Scope, report: Report) -> float | None:
    with report.noting(scope.use(clause.value)):
        value = fold(clause.value, scope.values, report)
        if value is None:
            return None
        if clause.key in ("workers", "per_machine"):
            return _count(clause, value, report)
        if clause.key == "latency":
            return _measured(clause, value, units.seconds, units.wrong_latency, units.LATENCY_WANTED, report)
        return _measured(clause, value, units.rate, units.wrong_rate, units.RATE_WANTED_IN_SPECS, report)


def _count(clause: syntax.Clause, value: syntax.Expression, report: Report) -> float | None:
    number = numeric(value) if isinstance(value, syntax.Number) else None
    if number is None or units.wrong_workers(None, number) is not None:
        message = f"{_shown(value)} is not a number of workers"
        report.error("RX0241", message, value.span, "not a whole number from 1 up", f"write {clause.key} = 4")
        return None
    return number


def _measured(
    clause: syntax.Clause, value: syntax.Expression, unit: Callable[[float, str], float | None],
    wrong: Callable[[float], str | None], wanted: str, report: Report,
) -> float | None:  # fmt: skip
    """A quantity that `unit` knows, and that is not `wrong`."""
    amount = unit(value.value, value.unit) if isinstance(value, syntax.Quantity) else None
    if amount is None:
        report.error("RX0240", f"`{_shown(value)}` is no {clause.key}", value.span, help=f"give {wanted}")
        return None
    if (absurd := wrong(amount)) is not None:
        message = f"a {clause.key} of {_shown(value)}"
        report.error("RX0240", message, value.span, absurd, f"give {wanted}")
        return None
    return amount


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
