"""What can be said of a program without running it: whether replicas agree, and how old what is applied is."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from relaxc.program.agreement import agreements_of
from relaxc.program.ir import After, Assign, Body, Every, Let, Phase, Read, Statement, flattened, within
from relaxc.program.settling import lowest


@dataclass(frozen=True, slots=True)
class Facts:
    """`agreement` is what weights are at the end of an iteration, at worst: replicated (the same bits on all workers),
    runs (the same after each run of a block), or local. `by_phase` tells it of each phase, by name. `staleness` is the
    largest number of iterations between a value and its use. `above`: disagreements die out in the eigenvectors of W
    whose eigenvalues are above it (settling.lowest)."""

    agreement: str
    by_phase: tuple[tuple[str, str], ...]
    staleness: int
    above: float = -1.0

    @property
    def consensus(self) -> bool:
        """Whether replicas differ, so that an evaluation wants `relaxed.consensus()`."""
        return self.agreement != "replicated"


def facts_of(body: Body) -> Facts:
    found = agreements_of(body)
    by_phase = tuple((name, str(agreement)) for name, agreement in found.weight.items())
    return Facts(found.word, by_phase, staleness(body), _above(body))


def _above(body: Body) -> float:
    """-1 where it can't be said: W = -1 there swaps values for ever."""
    found = lowest(body)
    return -1.0 if found is None else found


def staleness(body: Body) -> int:
    """Iterations between what is launched and its use. A block that only waits, and reads nothing of its launch, uses
    what is there when it runs."""
    return _staleness(body.statements, lets_of(body))


def lets_of(body: Body) -> dict[str, Let]:
    return {s.name: s for s in flattened(body.statements) if isinstance(s, Let)}


def of_the_launch(after: After, lets: Collection[str]) -> tuple[str, ...]:
    """Those of the body's lets that the block reads and does not make itself, in the order in which it reads them."""
    inside = {s.name for s in flattened(after.body) if isinstance(s, Let)}
    read = [
        part.name
        for statement in flattened(after.body)
        if isinstance(statement, Let | Assign)
        for part in within(statement.value)
        if isinstance(part, Read) and part.name in lets
    ]
    return tuple(name for name in dict.fromkeys(read) if name not in inside)


def _staleness(statements: tuple[Statement, ...], lets: Collection[str]) -> int:
    late = 0
    for statement in statements:
        match statement:
            case After(delay=delay, body=inner):
                waited = delay if of_the_launch(statement, lets) else 0
                late = max(late, waited + _staleness(inner, lets))
            case Every(body=inner) | Phase(body=inner):
                late = max(late, _staleness(inner, lets))
    return late
