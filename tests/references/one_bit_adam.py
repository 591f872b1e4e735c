"""1-bit Adam (Tang et al. 2021, algorithm 1): v frozen after the warm-up, the first moment through DoubleSqueeze."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import scaled_signs
from references.harness.means import Squeeze
from references.harness.team import Given, Team, average, place

SETTINGS = {"warmup": 10}
MOMENTUM = 0


def rule(team: Team, given: Given, warmup: int) -> Iterator[None]:
    m, v, squeeze = 0 * team[0].weight, 0 * team[0].weight, Squeeze(scaled_signs)
    for t in range(10**6):
        if t < warmup:
            gradient = average([w.gradient for w in team])
            m, v = 0.9 * m + 0.1 * gradient, 0.999 * v + 0.001 * gradient**2
        else:
            m = squeeze.mean([0.9 * m + 0.1 * w.gradient for w in team])
        place(team, [team[0].weight - team[0].rate * m / (v.sqrt() + 1e-8)] * len(team))
        yield
