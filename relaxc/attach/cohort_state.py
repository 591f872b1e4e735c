"""The numbers of a cohort as flat values of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping

from relaxc.attach.cohort import Cohort
from relaxc.attach.control import Counts, Entry


def snapshot(cohort: Cohort) -> dict[str, float]:
    """What a checkpoint needs of it, as flat numbers."""
    counts, made = cohort.control.counts, {"t": float(cohort.t)}
    made |= {f"number/{name}": value for name, value in cohort.numbers.items()}
    for kind, values in (("waited", counts.waited), ("reached", counts.reached), ("runs", counts.runs)):
        made |= {f"{kind}/{block}": float(value) for block, value in values.items()}
    for block, queue in counts.queues.items():
        for entry in queue:
            made |= {f"queue/{block}/{entry.due}/{b}": float(r) for b, r in entry.rounds.items()}
    for (block, t), captured in cohort.captured.items():
        made |= {f"captured/{block}/{t}/{name}": value for name, value in captured.items()}
    return made


def restore(cohort: Cohort, saved: Mapping[str, float]) -> None:
    """The reverse of `snapshot`. Raises KeyError where `saved` lacks something."""
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
