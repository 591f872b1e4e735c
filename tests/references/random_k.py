"""Random-k with error feedback (Stich et al. 2018): one element of each block, the same on all workers; vectors in full."""

from __future__ import annotations

from collections.abc import Iterator

from references import allreduce
from references.harness.kept import only, remembered_gradients
from references.harness.team import MATRICES, Given, Team

SHAPES = MATRICES


def rule(team: Team, given: Given, block: int = 100) -> Iterator[None]:
    if team[0].weight.ndim < 2:
        return allreduce.rule(team, given)
    return remembered_gradients(team, lambda t, x: only(given.chosen(t, block), x))
