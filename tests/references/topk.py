"""Top-k with error feedback (Aji and Heafield 2017; Stich et al. 2018): the largest elements of each matrix, vectors in full."""

from __future__ import annotations

from collections.abc import Iterator

from references import allreduce
from references.harness.kept import largest, remembered_gradients
from references.harness.team import MATRICES, Given, Team

SHAPES = MATRICES


def rule(team: Team, given: Given, part: float = 0.01) -> Iterator[None]:
    if team[0].weight.ndim < 2:
        return allreduce.rule(team, given)
    return remembered_gradients(team, lambda _, x: largest(part, x))
