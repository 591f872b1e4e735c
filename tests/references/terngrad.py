"""TernGrad (Wen et al. 2017) with clipping, the mean made ternary once more."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import ternary
from references.harness.means import drawn_gradients
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    return drawn_gradients(team, given, ternary)
