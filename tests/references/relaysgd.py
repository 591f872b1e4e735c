"""RelaySGD (Vogels et al. 2021): x_i = (1/n) sum_j of x_j + 1/2 step of as many iterations ago as the path from j to i
is long, less one; before the start, of the first weights. Written as that sum, from a history of all workers: no messages."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team
from torch import Tensor


def rule(team: Team, given: Given) -> Iterator[None]:
    n = len(team)
    apart = distances(given.matrix(0))
    first = [worker.weight.clone() for worker in team]
    history: list[list[Tensor]] = []
    for t in range(10**6):
        for worker in team:
            worker.step(worker.gradient)
        history.append([worker.weight.clone() for worker in team])
        for i, worker in enumerate(team):
            total = history[t][i]
            for j in (j for j in range(n) if j != i):
                age = apart[i][j] - 1
                total = total + (history[t - age][j] if t >= age else first[i])
            worker.weight = total / n
        yield


def distances(matrix: Tensor) -> list[list[int]]:
    """How many links are between two workers, by Floyd and Warshall; there is a link where the matrix has a weight."""
    n = len(matrix)
    apart = [[0 if i == j else 1 if matrix[i, j] else n for j in range(n)] for i in range(n)]
    for k in range(n):
        for i in range(n):
            for j in range(n):
                apart[i][j] = min(apart[i][j], apart[i][k] + apart[k][j])
    return apart
