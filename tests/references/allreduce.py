"""Data-parallel SGD: everyone steps with the mean gradient."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, average, step_with


def rule(team: Team, given: Given) -> Iterator[None]:
    while True:
        step_with(team, average([w.gradient for w in team]))
        yield
