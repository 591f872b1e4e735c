"""The numbers of a cohort as flat values of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxc.attach.cohort import Cohort
from relaxc.schedule.control import Counts, Entry


@dataclass(frozen=True)
class Moment:
    """What a cohort is at the start of an iteration; plain copies, since one is taken in every iteration."""

    t: int
    numbers: Mapping[str, float]
    counts: Counts
    captured: Mapping[tuple[int, int], Mapping[str, float]]


def moment(cohort: Cohort) -> Moment:
    counts = cohort.control.counts
    queues = {block: list(queue) for block, queue in counts.queues.items()}
    copied = Counts(dict(counts.waited), dict(counts.reached), dict(counts.runs), queues)
    return Moment(cohort.t, dict(cohort.numbers), copied, {k: dict(v) for k, v in cohort.captured.items()})


def flat(moment: Moment) -> dict[str, float]:
    """As a checkpoint keeps it."""
    counts, made = moment.counts, {"t": float(moment.t)}
    made |= {f"number/{name}": value for name, value in moment.numbers.items()}
    for kind, values in (("waited", counts.waited), ("reached", counts.reached), ("runs", counts.runs)):
        made |= {f"{kind}/{block}": float(value) for block, value in values.items()}
    for block, queue in counts.queues.items():
        for entry in queue:
            made |= {f"queue/{block}/{entry.due}/{b}": float(r) for b, r in entry.rounds.items()}
    for (block, t), captured in moment.captured.items():
        made |= {f"captured/{block}/{t}/{name}": value for name, value in captured.items()}
    return made


def restore(cohort: Cohort, saved: Mapping[str, float]) -> None:
    """The reverse of `flat`. Raises KeyError where `saved` lacks something."""
    counts, queues = Counts(), dict[int, dict[int, dict[int, int]]]()
    cohort.captured = {}
    for key, value in saved.items():
        kind, *rest = key.split("/")
        if kind == "queue":
            block, due, inner = map(int, rest)
            queues.setdefault(block, {}).setdefault(due, {})[inner] = int(value)
        elif kind == "captured":
            cohort.captured.setdefault((int(rest[0]), int(rest[1])), {})["/".join(rest[2:])] = value
        elif kind in ("waited", "reached", "runs"):
            getattr(counts, kind)[int(rest[0])] = int(value)
    counts.queues = {b: [Entry(due, rounds) for due, rounds in sorted(q.items())] for b, q in queues.items()}
    cohort.control.counts = counts
    cohort.t = int(saved["t"])
    cohort.numbers.update({name: saved[f"number/{name}"] for name in cohort.numbers})
