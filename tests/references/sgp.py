"""SGP (Assran et al. 2019, algorithm 1): a step on z = x / w added to x, then x and w pushed by the column-stochastic P."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    values, masses = [worker.weight.clone() for worker in team], [1.0] * len(team)
    for k in range(10**6):
        for i, worker in enumerate(team):
            before = worker.weight
            worker.step(worker.gradient)
            values[i] = values[i] + (worker.weight - before)
        shares = given.matrix(k)
        values = [sum(p * x for p, x in zip(row, values, strict=True)) for row in shares]
        masses = [sum(float(p) * w for p, w in zip(row, masses, strict=True)) for row in shares]
        for worker, value, mass in zip(team, values, masses, strict=True):
            worker.weight = value / mass
        yield
