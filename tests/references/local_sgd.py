"""Local SGD (McMahan et al. 2017; Stich 2019): weights are averaged after every `period` steps."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, average, place, step_alone

SETTINGS = {"period": 8}


def rule(team: Team, given: Given, period: int) -> Iterator[None]:
    for t in range(1, 10**6):
        step_alone(team)
        if t % period == 0:
            place(team, [average([w.weight for w in team])] * len(team))
        yield
