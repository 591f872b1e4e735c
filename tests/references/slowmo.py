"""SlowMo (Wang et al. 2020, algorithm 1) on local SGD: u = beta u + (x_0 - mean x_tau) / lr; x_0 = x_0 - alpha lr u."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, average, place, step_alone

SETTINGS = {"period": 6}


def rule(team: Team, given: Given, period: int, beta: float = 0.5, alpha: float = 1) -> Iterator[None]:
    x_0, u = team[0].weight, 0 * team[0].weight
    for t in range(1, 10**6):
        step_alone(team)
        if t % period == 0:
            lr = team[0].rate
            u = beta * u + (x_0 - average([w.weight for w in team])) / lr
            x_0 = x_0 - alpha * lr * u
            place(team, [x_0] * len(team))
        yield
