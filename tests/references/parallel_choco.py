"""CHOCO-SGD with the exchange beside the gradient (Koloskova et al. 2020, the parallel form), with a replica of each neighbour:
x_i+ = x_i - lr g_i + gamma sum_j W_ij (r_j - r_i), where r_j += C(x_j - r_j) was sent while g_i was computed."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import scaled_signs
from references.harness.team import Given, Team, mixed, place, step_alone


def rule(team: Team, given: Given, gamma: float = 0.4) -> Iterator[None]:
    replicas = [0 * w.weight for w in team]
    while True:
        replicas = [r + scaled_signs(w.weight - r) for r, w in zip(replicas, team, strict=True)]
        step_alone(team)
        around = mixed(given.matrix(0), replicas)
        place(team, [w.weight + gamma * (a - r) for w, a, r in zip(team, around, replicas, strict=True)])
        yield
