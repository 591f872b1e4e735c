"""Does what is mixed, or pushed, come to an average?

RX0314: a state that adds up mixes, `s = s + mix(x)` or `s = a * s + mix(x)`, spelled out or through lets, is to be the
mix of what was added up: x is a code, or a difference to s itself, or a value as it is. That holds only where the
matrix stays the same. What may be added up over neighbours that change is a *movement*, which stands for itself and is
done with when it is applied: a mix of a difference, or the difference of a mix and something else, such as noloco's
velocity made of mix(weight - anchor) and mix(anchor) - anchor, or gossip's s += mix(s) - s.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place
from relaxc.program.ir import Apply, Assign, Exchange, Expression, Read, children
from relaxc.topology.kinds import changes
from relaxc.wire.routes import WEIGHTED

SEVERAL = {"mix": "mixes", "push": "pushes"}


def check_mixing(judged: Judged, report: Report) -> None:
    states = {state.name for state in judged.body.states}
    for statement in judged.statements:
        if isinstance(statement, Assign) and statement.name in states:
            _added_up(judged, statement, report)
    _gradient_averaged(judged, report)


def _added_up(judged: Judged, statement: Assign, report: Report) -> None:
    state = statement.name
    if state not in judged.beside(statement.value):
        return
    for mix, apart in _mixes(judged, statement.value):
        if mix.topology is not None and changes(mix.topology) and not _is_movement(judged, mix, apart, state):
            report.error("RX0314", f"`{state}` adds up {SEVERAL[mix.kind]} over {mix.topology}, which changes",
                         place(statement),
                         f"the sum of {SEVERAL[mix.kind]} over different neighbours is the {mix.kind} of nothing",
                         "use a topology that never changes, such as ring, torus or exponential")  # fmt: skip
            return


def _mixes(judged: Judged, e: Expression) -> Iterator[tuple[Exchange, bool]]:
    """The mixes and pushes that `e` is made of, lets looked into; each with whether it is one side of a difference."""
    seen: set[tuple[str, bool]] = set()
    waiting = [(e, False)]
    while waiting:
        part, apart = waiting.pop()
        if isinstance(part, Exchange):
            if part.kind in WEIGHTED:
                yield part, apart
        elif isinstance(part, Read):
            if part.name in judged.lets and (part.name, apart) not in seen:
                seen.add((part.name, apart))
                waiting.append((judged.lets[part.name].value, apart))
        else:
            waiting += [(inner, apart or _is_difference(part)) for inner in children(part)]


def _is_movement(judged: Judged, mix: Exchange, apart: bool, state: str) -> bool:
    if judged.is_code(mix.value) or any(state in names for names in _taken_off(judged, mix.value)):
        return False
    return apart or any(map(_is_difference, judged.parts(mix.value)))


def _taken_off(judged: Judged, e: Expression) -> Iterator[set[str]]:
    """What the right sides of the differences are made of that `e` is made of."""
    for part in judged.parts(e):
        if isinstance(part, Apply) and part.function == "-":
            yield judged.beside(part.arguments[1])


def _is_difference(e: Expression) -> bool:
    return isinstance(e, Apply) and e.function == "-"


def _gradient_averaged(judged: Judged, report: Report) -> None:
    mixed: Exchange | None = None
    for e in judged.exchanges():
        sources = judged.sources(e.value)
        if "weight" in sources or (e.kind not in WEIGHTED and "grad" in sources):
            return
        if e.kind in WEIGHTED and "grad" in sources:
            mixed = mixed or e
    if mixed is not None:
        report.warn("RX0332", "the gradient is mixed but never averaged", place(mixed),
                    "replicas drift apart, and nothing pulls them together",
                    "mix weights too, or take mean(grad)")  # fmt: skip
