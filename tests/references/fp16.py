"""Gradients in float16: 11 significant bits, on both legs of the mean."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import cast
from references.harness.means import coded_gradients
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    return coded_gradients(team, lambda x: cast(11, 2**-24, x))
