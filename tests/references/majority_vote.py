"""signSGD with majority vote (Bernstein et al. 2018, algorithm 3): sign(sum of signs)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import signs
from references.harness.team import Given, Team, step_with


def rule(team: Team, given: Given) -> Iterator[None]:
    while True:
        votes = sum(signs(w.gradient) for w in team)
        step_with(team, signs(votes))
        yield
