"""EF-signSGD (Karimireddy et al. 2019, algorithm 2; among workers with an exact mean of what they send)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import scaled_signs
from references.harness.team import Given, Team, average, place

MOMENTUM = 0


def rule(team: Team, given: Given) -> Iterator[None]:
    error = [0 * w.weight for w in team]
    while True:
        wanted = [w.rate * w.gradient + e for w, e in zip(team, error, strict=True)]
        sent = [scaled_signs(p) for p in wanted]
        error = [p - q for p, q in zip(wanted, sent, strict=True)]
        place(team, [team[0].weight - average(sent)] * len(team))
        yield
