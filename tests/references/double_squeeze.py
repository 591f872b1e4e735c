"""DoubleSqueeze (Tang et al. 2019), with signs times mean magnitudes."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import Code, scaled_signs
from references.harness.means import Squeeze
from references.harness.team import Given, Team, step_with


def rule(team: Team, given: Given, code: Code = scaled_signs, owner_remembers: bool = True) -> Iterator[None]:
    squeeze = Squeeze(code, owner_remembers)
    while True:
        step_with(team, squeeze.mean([w.gradient for w in team]))
        yield
