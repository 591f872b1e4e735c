"""ECD-PSGD (Tang et al. 2018, algorithm 2), with an estimate e_j of each neighbour and t from 1:
x' = sum_j W_ij e_j + update; e_j = (1 - 2/t) e_j + (2/t) C((1 - t/2) x_j + (t/2) x'_j)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import qsgd
from references.harness.team import Given, Team, mixed


def rule(team: Team, given: Given) -> Iterator[None]:
    estimates = [w.weight for w in team]
    for t in range(1, 10**6):
        around, heard = mixed(given.matrix(0), estimates), []
        for i, worker in enumerate(team):
            before = worker.weight
            worker.step(worker.gradient)
            worker.weight = around[i] + (worker.weight - before)
            z = (1 - t / 2) * before + (t / 2) * worker.weight
            heard.append(qsgd(8, z, given.uniforms(t - 1, i)))
        estimates = [(1 - 2 / t) * e + (2 / t) * c for e, c in zip(estimates, heard, strict=True)]
        yield
