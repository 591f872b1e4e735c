"""What a trace found, in lines."""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.schedule.profile import ParameterTimes, Profile

SHOWN = 5
"""Gradients in the table."""
LATE = "gradients come only after the whole backward, so nothing overlaps with it: compile it block by block"


def report(profile: Profile) -> tuple[str, ...]:
    """Which tracer, why not those before it, what is particular, and the gradients that come last."""
    return tuple(_lines(profile))


def _lines(profile: Profile) -> Iterator[str]:
    source = "estimated from operations and bytes, not measured" if profile.estimated else "medians of several runs"
    way = "a recorded iteration" if profile.how == "recorded" else profile.how
    yield (
        f"traced by {way} on {profile.device}: forward {_time(profile.forward)}, backward "
        f"{_time(profile.backward)}, a plain step {_time(profile.step)} ({source})"
    )
    yield from (f"not traced by {reason}" for reason in profile.why)
    if profile.late_gradients:
        yield LATE
    if idle := [p.name for p in profile.parameters if p.ready is None]:
        yield f"without a gradient: {_few(idle)}"
    yield from _table([p for p in profile.parameters if p.ready is not None], profile.backward)


def _table(parameters: list[ParameterTimes], backward: float) -> Iterator[str]:
    last = sorted(parameters, key=lambda p: -(p.ready or 0.0))[:SHOWN]
    width = max((len(p.name) for p in last), default=0)
    for p in last:
        share = (p.ready or 0.0) / backward if backward > 0 else 0.0
        read = "nowhere" if p.needed is None else f"at {_time(p.needed)} of forward by {p.module or 'the model'}"
        yield f"  {p.name:<{width}}  gradient at {_time(p.ready or 0.0)} ({share:.0%} of backward), weight read {read}"


def _few(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")


def _time(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"
