"""GossipGraD (Daily et al. 2018): everyone steps with the mean of its own gradient and a partner's."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed


def rule(team: Team, given: Given) -> Iterator[None]:
    for t in range(10**6):
        for worker, gradient in zip(team, mixed(given.matrix(t), [w.gradient for w in team]), strict=True):
            worker.step(gradient)
        yield
