"""D-PSGD (Lian et al. 2017, algorithm 1): x_i = sum_j W_ij x_j - lr g_i, the gradient of x_i as it was."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed, place


def rule(team: Team, given: Given) -> Iterator[None]:
    for t in range(10**6):
        gradients = [w.gradient for w in team]
        place(team, mixed(given.matrix(t), [w.weight for w in team]))
        for worker, gradient in zip(team, gradients, strict=True):
            worker.step(gradient)
        yield
