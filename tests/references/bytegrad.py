"""ByteGrad (Gan et al. 2021): 8-bit min-max on both legs, nothing remembered, here on each 512 elements."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import minmax
from references.harness.means import coded_gradients
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    return coded_gradients(team, lambda x: minmax(8, x))
