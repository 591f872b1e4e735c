"""DCD-PSGD (Tang et al. 2018, algorithm 1), with a replica of each neighbour: y = sum_j W_ij r_j + update; q = C(y - x);
x += q; r_j += q_j."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import qsgd
from references.harness.team import Given, Team, mixed


def rule(team: Team, given: Given) -> Iterator[None]:
    replicas = [w.weight for w in team]
    for t in range(10**6):
        around, sent = mixed(given.matrix(0), replicas), []
        for i, worker in enumerate(team):
            before = worker.weight
            worker.step(worker.gradient)
            y = around[i] + (worker.weight - before)
            sent.append(qsgd(8, y - before, given.uniforms(t, i)))
            worker.weight = before + sent[i]
        replicas = [r + q for r, q in zip(replicas, sent, strict=True)]
        yield
