"""What a plan at work tells of itself, as numbers."""

from __future__ import annotations

from typing import Any

from relaxc.attach.attached import Attached
from relaxc.attach.programs import Programs


def stats_of(attached: Attached) -> dict[str, float | int]:
    """Flat scalars; Relaxed.stats says what each is."""
    engine, schedule = attached.running.engine, attached.schedule
    counters = engine.counters()
    found = {
        **counters,
        "iterations": engine.iterations,
        "staleness": max((body.staleness for body in attached.manifest.bodies), default=0),
        "predicted_bytes_per_iteration": schedule.sent_bytes,
        "predicted_wire_bytes_per_iteration": schedule.wire_bytes,
        "predicted_bytes": schedule.sent_bytes * counters["exchanges"],
        "buckets": len(schedule.buckets),
        "workers": schedule.workers,
    }
    return found if attached.programs is None else _with_programs(found, attached.programs)


def _with_programs(stats: dict[str, Any], programs: Programs) -> dict[str, Any]:
    counters = programs.operations.counters()
    if programs.asynchrony is not None:
        stats |= programs.asynchrony.stats()
        stats["staleness"] = max(stats["staleness"], programs.asynchrony.oldest)
        for lane in programs.asynchrony.lanes:
            counters = {key: value + counters[key] for key, value in lane.operations.counters().items()}
            counters["exposed_seconds"] += lane.counts.exposed_seconds
    for key in ("bytes_sent", "exchange_seconds", "kernel_seconds", "exposed_seconds", "trips"):
        stats[key] += counters[key]
    return {
        **stats,
        "jobs": counters["exchanges"],
        "iterations": max(clock.iterations for clock in programs.clocks),
        "predicted_bytes": stats["predicted_bytes"] + programs.traffic.predicted_bytes,
    }


def residual_norms(attached: Attached) -> dict[str, float]:
    """By parameter; those without a residual are left out."""
    attached.running.engine.drain()
    squares: dict[str, list[float]] = {p.name: [] for p in attached.read.parameters}
    for parameter, kept in zip(attached.read.parameters, attached.running.residuals, strict=True):
        squares[parameter.name] += [t.norm().item() ** 2 for t in (kept.worker, kept.owner) if t is not None]
    if attached.programs is not None:
        attached.programs.drain()
        for name, residual in attached.programs.residuals():
            squares[name].append(residual.norm().item() ** 2)
    return {name: float(sum(found) ** 0.5) for name, found in squares.items() if found}
