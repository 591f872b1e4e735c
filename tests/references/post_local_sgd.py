"""Post-local SGD (Lin et al. 2020): mean gradients for `start` iterations, then local SGD."""

from __future__ import annotations

from collections.abc import Iterator

from references import allreduce, local_sgd
from references.harness.team import Given, Team

SETTINGS = {"start": 12, "period": 4}


def rule(team: Team, given: Given, start: int, period: int) -> Iterator[None]:
    together = allreduce.rule(team, given)
    for _ in range(start):
        next(together)
        yield
    yield from local_sgd.rule(team, given, period)
