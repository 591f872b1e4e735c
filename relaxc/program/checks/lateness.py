"""Does what lands late fit with what happened meanwhile?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf, pi, sin

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place
from relaxc.program.checks.pull import factor_of_pull
from relaxc.program.facts import of_the_launch
from relaxc.program.ir import (
    After,
    Assign,
    Body,
    Constant,
    Every,
    Exchange,
    Expression,
    Let,
    Phase,
    Read,
    Statement,
    flattened,
    within,
)  # fmt: skip
from relaxc.topology.kinds import spread
from relaxc.topology.topology import Topology
from relaxc.wire.routes import WEIGHTED


@dataclass(frozen=True, slots=True)
class Launch:
    """An `after` with what stands around it: the block that launches it, and how many iterations apart launches are at
    least (inf where that is not known). `fragments`: each parameter has a turn of its own."""

    after: After
    beside: tuple[Statement, ...]
    apart: float
    fragments: bool = False

    @property
    def rounds(self) -> int:
        """Launches that follow this one until it lands."""
        return 0 if self.after.asynchronous else int(self.after.delay // self.apart)


def launches(statements: tuple[Statement, ...], apart: float = 1, fragments: bool = False) -> Iterator[Launch]:
    """Those of a body, none of which is within another."""
    for statement in statements:
        match statement:
            case After():
                yield Launch(statement, statements, apart, fragments)
            case Every(body=body):
                turns = fragments or statement.how == "staggered"
                yield from launches(body, apart * _least_period(statement), turns)
            case Phase(body=body):
                yield from launches(body, apart, fragments)


def rounds_late(body: Body) -> int:
    """How many further launches there are, at most, before one lands."""
    return max((launch.rounds for launch in launches(body.statements)), default=0)


def _least_period(every: Every) -> float:
    """Runs of a random period may follow one another at once; one that is computed is taken to be long."""
    if every.how == "geometric":
        return 1
    return every.period.value if isinstance(every.period, Constant) else inf


def check_lateness(judged: Judged, report: Report) -> None:
    for launch in launches(judged.body.statements):
        _nested(launch, report)
        if _overlapping(launch, report):
            continue
        _overwritten(judged, launch, report)
        _pulled_twice(judged, launch, report)


def _nested(launch: Launch, report: Report) -> None:
    for statement in flattened(launch.after.body):
        if isinstance(statement, After):
            report.error("RX0190", "lateness within an `after` is not built yet", place(statement),
                         "in the language, but not in this version", "launch it beside the first one")  # fmt: skip


def _overlapping(launch: Launch, report: Report) -> bool:
    """Whether a fragment's turn comes again before what it sent last time has landed."""
    late, apart = launch.after.delay, launch.apart
    if not launch.fragments or late < apart:
        return False
    report.error("RX0373", f"a fragment lands {late} iterations after it was sent, and is sent again after {apart:g}",
                 place(launch.after), "two of its exchanges would be under way at once",
                 f"let it land within {apart - 1:g} iterations, or use a longer period")  # fmt: skip
    return True


def _overwritten(judged: Judged, launch: Launch, report: Report) -> None:
    inside = {s.name for s in flattened(launch.after.body) if isinstance(s, Let)}
    for statement in flattened(launch.after.body):
        if not isinstance(statement, Assign) or statement.name != "weight":
            continue
        if "weight" not in _landing_reads(judged, statement.value, inside):
            help_ = "move weights instead: weight += change, so that what was done meanwhile is kept"
            report.error("RX0313", "a late value overwrites weight", place(statement),
                         f"the progress {_meanwhile(launch.after)} is lost", help_)  # fmt: skip


def _meanwhile(after: After) -> str:
    return "made meanwhile" if after.asynchronous else f"of {after.delay} iterations"


def _landing_reads(judged: Judged, e: Expression, inside: set[str]) -> set[str]:
    """What `e` reads when it lands: lets of the landing block are looked into, those of the launch are old."""
    found: set[str] = set()
    waiting = [e]
    while waiting:
        for part in within(waiting.pop()):
            if isinstance(part, Read) and part.name not in found:
                found.add(part.name)
                if part.name in inside:
                    waiting.append(judged.lets[part.name].value)
    return found


def _pulled_twice(judged: Judged, launch: Launch, report: Report) -> None:
    """A launch that reads what an earlier launch, still under way, is going to change."""
    after = launch.after
    if launch.apart > after.delay:
        return
    lets = [judged.lets[name] for name in of_the_launch(after, judged.lets)]
    for let in lets:
        changed = judged.sources(let.value) & _assigned(after) - {"grad"}
        if not changed or _taken_out(judged, let, launch.beside):
            continue
        topology = _mixed_weight(judged, let)
        if topology is not None:
            _mixed_late(judged, launch, topology, report)
        elif _is_weight(let.value) and any(map(partial(_mixed_weight, judged), lets)):
            continue  # what the mix is compared with
        else:
            _warn(launch, sorted(changed), report)
        return


def _assigned(after: After) -> set[str]:
    return {s.name for s in flattened(after.body) if isinstance(s, Assign)}


def _taken_out(judged: Judged, let: Let, beside: tuple[Statement, ...]) -> bool:
    """Whether what the let reads is progress since launch: the launching block gives one of the states that it reads a
    new value afterwards, so that the next launch does not send the same again."""
    read = judged.sources(let.value) - {"weight", "grad"}
    begun = False
    for statement in beside:
        begun |= isinstance(statement, Let) and statement.name == let.name
        if begun and isinstance(statement, Assign) and statement.name in read:
            return True
    return False


def _mixed_weight(judged: Judged, let: Let) -> Topology | None:
    """The topology, where what is launched is a plain mix or push of weights."""
    for name in {let.name, *judged.sources(let.value)} & set(judged.lets):
        for part in within(judged.lets[name].value):
            if isinstance(part, Exchange) and part.kind in WEIGHTED and _is_weight(part.value):
                return part.topology
    return None


def _is_weight(e: Expression) -> bool:
    return isinstance(e, Read) and e.name == "weight"


def stable_below(delay: int) -> float:
    """x += z(t - k), z = (W - I)x at every t, is stable for eigenvalues 1 - lambda below this; t counts
    launches."""
    return 2 * sin(pi / (2 * (2 * delay + 1)))


def _warn(launch: Launch, changed: list[str], report: Report) -> None:
    names = " and ".join(f"`{name}`" for name in changed)
    report.warn("RX0330", f"what is launched reads {names}, which earlier launches are still to change",
                place(launch.after), "the same difference is made up for more than once",
                f"{_rarer(launch.after.delay)}, or send the progress since the last launch")  # fmt: skip


def _mixed_late(judged: Judged, launch: Launch, topology: Topology, report: Report) -> None:
    """A pull by a constant factor is as a mix whose 1 - lambda are as much smaller."""
    factor = factor_of_pull(judged, launch.after)
    found, below = spread(topology) * (1 if factor is None else factor), stable_below(launch.rounds)
    if found < below:
        return
    delay = launch.after.delay
    often = "in every iteration" if launch.apart == 1 else f"once in {launch.apart:g} iterations"
    does = "may diverge" if factor is None else "diverge"
    what = "1 - lambda_min(W)" if factor in (None, 1) else f"{factor:g} * (1 - lambda_min(W))"
    where = " for a pull by the whole difference" if factor is None else ""
    report.warn("RX0330", f"weights mixed over {topology} {often}, {delay} late, {does}",
                place(launch.after), f"{what} is up to {found:.2f}, as the number of workers is; "
                f"stable below {below:.2f}{where}", _rarer(delay))  # fmt: skip


def _rarer(delay: int) -> str:
    return f"launch at most once in {delay + 1} iterations, in a block `every {delay + 1}`"
