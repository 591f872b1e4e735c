"""SPARTA (Beton et al. 2025): everyone steps alone, then the drawn weights are averaged and the others left alone."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.kept import only
from references.harness.team import MATRICES, Given, Team, average, place, step_alone

SHAPES = MATRICES


def rule(team: Team, given: Given, block: int = 200) -> Iterator[None]:
    for t in range(10**6):
        step_alone(team)
        drawn = [only(given.chosen(t, block), w.weight) for w in team]
        mean = average(drawn)
        place(team, [w.weight - own + mean for w, own in zip(team, drawn, strict=True)])
        yield
