"""Elastic averaging SGD (Zhang, Choromanska and LeCun 2015), synchronous: with alpha = beta / p, in one iteration of each
`period` x_i -= alpha (x_i - c) and c += alpha sum (x_i - c), both with the values of before, and the gradient of x_i as it was."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team

SETTINGS = {"period": 4}


def rule(team: Team, given: Given, period: int, beta: float = 0.9) -> Iterator[None]:
    center, alpha = team[0].weight, beta / len(team)
    for t in range(1, 10**6):
        gradients = [w.gradient for w in team]
        if t % period == 0:
            apart = [w.weight - center for w in team]
            for worker, stretch in zip(team, apart, strict=True):
                worker.weight = worker.weight - alpha * stretch
            center = center + alpha * sum(apart)
        for worker, gradient in zip(team, gradients, strict=True):
            worker.step(gradient)
        yield
