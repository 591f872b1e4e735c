"""SwarmSGD (Nadiradze et al. 2021, algorithm 1), blocking: when a random number of local steps is over, pairs average."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed, place, step_alone


def rule(team: Team, given: Given) -> Iterator[None]:
    met = 0
    for t in range(10**6):
        step_alone(team)
        if given.drawn(t, 4):
            matrix = given.matrix(met)
            assert all(float(w) in (0, 0.5, 1) for w in matrix.reshape(-1)), "pairs, or alone"
            place(team, mixed(matrix, [w.weight for w in team]))
            met += 1
        yield
