"""Natural compression (Horvath et al. 2019) of every contribution and of the mean."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import natural
from references.harness.means import drawn_gradients
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    return drawn_gradients(team, given, natural)
