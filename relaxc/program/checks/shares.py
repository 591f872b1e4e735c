"""Is the mean kept where what workers hear does not add up to 1?

Over a graph that is column stochastic only, each worker shares out what it has, and some hear more than others. A mix
of values is then no average: RX0364. A push keeps the sum of all, and a worker's part of it is told by its *mass*, a
number that is pushed along: value / mass is what comes to the mean. RX0362: nothing that was pushed is divided by.
"""

from __future__ import annotations

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place, values
from relaxc.program.ir import Apply, Assign, Exchange, Expression, Let, Read, within
from relaxc.topology.kinds import doubly_stochastic


def check_shares(judged: Judged, report: Report) -> None:
    unbalanced = [e for e in judged.exchanges() if e.topology is not None and not doubly_stochastic(e.topology)]
    for e in (e for e in unbalanced if e.kind == "mix"):
        report.error("RX0364", f"a mix over {e.topology} does not keep the mean", place(e),
                     "what its workers hear does not add up to 1",
                     "push value and mass and divide, as specs/sgp.relax does, or take another topology")  # fmt: skip
    pushed = [e for e in unbalanced if e.kind == "push"]
    if pushed and not _divides(judged):
        report.warn("RX0362", f"pushed over {pushed[0].topology}, and no mass is pushed and divided by",
                    place(pushed[0]), "workers that hear more get more: what they hold is no average",
                    "state mass = 1, mass = push(mass, topology), and use the value divided by mass")  # fmt: skip


def _divides(judged: Judged) -> bool:
    """Whether something that was pushed, or is made of that, stands below a fraction line."""
    made = _made_of_pushes(judged)
    divisors = (part.arguments[1] for part in _parts(judged) if isinstance(part, Apply) and part.function == "/")
    powers = (part.arguments[0] for part in _parts(judged) if isinstance(part, Apply) and part.function == "^")
    return any(_is_made(e, made) for e in (*divisors, *powers))


def _parts(judged: Judged) -> list[Expression]:
    return [part for s in judged.statements for value in values(s) for part in within(value)]


def _made_of_pushes(judged: Judged) -> set[str]:
    """Names that are ever given something pushed, or something made of such a name."""
    given = [s for s in judged.statements if isinstance(s, Let | Assign)]
    made: set[str] = set()
    while new := {s.name for s in given if s.name not in made and _is_made(s.value, made)}:
        made |= new
    return made


def _is_made(e: Expression, made: set[str]) -> bool:
    return any(
        (isinstance(part, Exchange) and part.kind == "push") or (isinstance(part, Read) and part.name in made)
        for part in within(e)
    )
