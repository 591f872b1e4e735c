"""Bagua's shift_one: D-PSGD with one partner. In step s of n workers, r < n / 2 meets (s + r) mod (n / 2) + n / 2."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references import dpsgd
from references.harness.team import Given, Team


def rule(team: Team, given: Given) -> Iterator[None]:
    n = len(team)
    if n % 2 == 0:  # what an odd number does is not published
        for s in range(n):
            expected = torch.eye(n, dtype=torch.float64) / 2
            for r in range(n // 2):
                partner = (s + r) % (n // 2) + n // 2
                expected[r, partner] = expected[partner, r] = 0.5
            assert torch.equal(given.matrix(s), expected)
    return dpsgd.rule(team, given)
