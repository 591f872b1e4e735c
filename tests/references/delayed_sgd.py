"""The mean gradient of an iteration is applied `late` iterations later (Agarwal and Duchi 2011)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, average, step_with


def rule(team: Team, given: Given, late: int = 1) -> Iterator[None]:
    under_way = []
    while True:
        under_way.append(average([w.gradient for w in team]))
        if len(under_way) > late:
            step_with(team, under_way.pop(0))
        yield
