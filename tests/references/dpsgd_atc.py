"""Adapt then combine: x_i = sum_j W_ij (x_j - lr g_j)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed, place, step_alone


def rule(team: Team, given: Given) -> Iterator[None]:
    for t in range(10**6):
        step_alone(team)
        place(team, mixed(given.matrix(t), [w.weight for w in team]))
        yield
