"""QSGD (Alistarh et al. 2017) with 4 bits, the mean rounded at random once more."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import qsgd
from references.harness.means import drawn_gradients
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    return drawn_gradients(team, given, lambda x, u: qsgd(4, x, u))
