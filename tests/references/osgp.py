"""Overlap SGP (Assran et al. 2019, algorithm 2): what is sent in iteration k is added in iteration k + late, value and
mass together; what a worker keeps for itself it has at once."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from references.harness.team import Given, Team
from torch import Tensor


def rule(team: Team, given: Given, late: int = 1) -> Iterator[None]:
    n = len(team)
    values, masses = [worker.weight.clone() for worker in team], [1.0] * n
    under_way: list[deque[tuple[int, Tensor, float]]] = [deque() for _ in team]
    for k in range(10**6):
        for i, worker in enumerate(team):
            before = worker.weight
            worker.step(worker.gradient)
            values[i] = values[i] + (worker.weight - before)
        shares = given.matrix(k)
        for i in range(n):
            others = [j for j in range(n) if j != i]
            sent = sum((shares[i, j] * values[j] for j in others), 0 * values[i])
            under_way[i].append((k + late, sent, sum(float(shares[i, j]) * masses[j] for j in others)))
        for i, worker in enumerate(team):
            values[i], masses[i] = shares[i, i] * values[i], float(shares[i, i]) * masses[i]
            while under_way[i] and under_way[i][0][0] == k:
                _, value, mass = under_way[i].popleft()
                values[i], masses[i] = values[i] + value, masses[i] + mass
            worker.weight = values[i] / masses[i]
        yield
