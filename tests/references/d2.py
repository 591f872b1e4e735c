"""D2 (Tang et al. 2018, algorithm 1): x_1 = W (x_0 - lr g_0), then x_{t+1} = W (2 x_t - x_{t-1} - lr g_t + lr g_{t-1}), each
lr g the step that SGD took."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed, place


def rule(team: Team, given: Given) -> Iterator[None]:
    x_before, moved_before = [w.weight for w in team], [0 * w.weight for w in team]
    while True:
        x = [w.weight for w in team]
        for worker in team:
            worker.step(worker.gradient)
        moved = [w.weight - old for w, old in zip(team, x, strict=True)]
        ahead = [
            2 * now - old + step - step_before
            for now, old, step, step_before in zip(x, x_before, moved, moved_before, strict=True)
        ]
        place(team, mixed(given.matrix(0), ahead))
        x_before, moved_before = x, moved
        yield
