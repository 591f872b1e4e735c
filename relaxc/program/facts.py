"""What can be said of a program without running it: whether replicas agree, and how old what is applied is."""

from __future__ import annotations

from dataclasses import dataclass

from relaxc.program.agreement import agreements_of
from relaxc.program.ir import After, Body, Every, Phase, Statement


@dataclass(frozen=True, slots=True)
class Facts:
    """`agreement` is what weights are at the end of an iteration, at worst: replicated (the same bits on all workers),
    runs (the same after each run of a block), or local. `by_phase` tells it of each phase, by name. `staleness` is the
    largest number of iterations between a value and its use."""

    agreement: str
    by_phase: tuple[tuple[str, str], ...]
    staleness: int

    @property
    def consensus(self) -> bool:
        """Whether replicas differ, so that an evaluation wants `relaxed.consensus()`."""
        return self.agreement != "replicated"


def facts_of(body: Body) -> Facts:
    found = agreements_of(body)
    by_phase = tuple((name, str(agreement)) for name, agreement in found.weight.items())
    return Facts(found.word, by_phase, staleness(body))


def staleness(body: Body) -> int:
    """Iterations between what is launched and its use."""
    return _staleness(body.statements)


def _staleness(statements: tuple[Statement, ...]) -> int:
    late = 0
    for statement in statements:
        match statement:
            case After(delay=delay, body=inner):
                late = max(late, delay + _staleness(inner))
            case Every(body=inner) | Phase(body=inner):
                late = max(late, _staleness(inner))
    return late
