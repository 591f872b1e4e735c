"""When in an iteration each entry of a schedule is done, and why there."""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.program.passes.cut import Draft, Entry, Mark
from relaxc.program.passes.line import Leaves, Line

MARKS = ("begun", "cut", "step", "tail")


def stages(line: Line, entries: list[Entry]) -> Iterator[tuple[str, Entry]]:
    """Every draft, start and finish with its stage, in order."""
    marks = [entry.kind for entry in entries if isinstance(entry, Mark) and entry.kind in MARKS]
    applies = "before" if line.steps else "after"
    body = "backward" if "cut" in marks else applies
    stage = "begin" if "begun" in marks else body
    behind = {"begun": body, "cut": applies, "step": "after", "tail": "tail"}
    for entry in entries:
        if isinstance(entry, Mark) and entry.kind in behind:
            stage = behind[entry.kind]
        else:
            yield stage, entry


def why(stage: str, entry: Entry, line: Line) -> str:
    """In the user's words."""
    if isinstance(entry, Draft):
        if entry.measures:
            return "norms are over whole parameters"
        return _WHY_COMPUTED[stage] if line.steps or stage != "after" else "there is no optimiser's step to wait for"
    if entry.late:
        return "it was launched in an earlier iteration and lands here"
    if entry.kind == "start":
        if stage == "after" and not line.steps:
            return _WHY_STARTED["tail"]
        return _begins(line, entry.number) if stage == "begin" else _WHY_STARTED[stage]
    return _WHY_FINISHED[stage]


def _begins(line: Line, number: int) -> str:
    value = next(e.value for e in line.events if isinstance(e, Leaves) and e.number == number)
    made_of = {v for v in line.closure(value) if v not in line.defined}
    kinds = [*(["weights"] if "weight" in made_of else []), *(["states"] if made_of - {"weight"} else [])]
    what = " and ".join(kinds) or "numbers"
    return f"reads {what} only: runs beside forward and backward"


_WHY_COMPUTED = {
    "begin": "needs nothing that this iteration makes",
    "backward": "gradients are ready when backward returns",
    "before": "the optimiser's step comes behind it",
    "after": "comes behind the optimiser's step",
    "tail": "weights are needed at the next forward",
}
_WHY_STARTED = {
    "backward": "leaves as soon as gradients are there",
    "before": "leaves as soon as its value is known, before the optimiser's step",
    "after": "leaves as soon as its value is known, behind the optimiser's step",
    "tail": "leaves as soon as its value is known",
}
_WHY_FINISHED = {
    "begin": "its result is needed at once",
    "backward": "gradients are ready when backward returns",
    "before": "its result is needed before the optimiser's step",
    "after": "its result is needed behind the optimiser's step",
    "tail": "weights are needed at the next forward",
}
