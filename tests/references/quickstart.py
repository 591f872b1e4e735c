"""4-bit min-max with both memories for matrices, the exact mean for all others."""

from __future__ import annotations

from collections.abc import Iterator

from references import allreduce, double_squeeze
from references.harness.codes import minmax
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    if team[0].weight.ndim < 2:
        return allreduce.rule(team, given)
    return double_squeeze.rule(team, given, lambda x: minmax(4, x))
