"""0/1 Adam (Lu et al. 2022, algorithm 1), v refreshed before it divides.

u sums what a worker moved since t', the last exchange. In T_u: u is averaged in one bit, m = mean(u) / sum of the learning
rates, x = x(t') - mean(u) / sqrt(v + eps). The k-th of T_v is followed by the next after 2^floor(k / kappa).
"""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import scaled_signs
from references.harness.means import Squeeze
from references.harness.team import Given, Team, average

SETTINGS = {"warmup": 6, "double": 8, "longest": 4, "kappa": 3}
MOMENTUM = 0


def rule(team: Team, given: Given, warmup: int, double: int, longest: int, kappa: int) -> Iterator[None]:
    zero, squeeze = 0 * team[0].weight, Squeeze(scaled_signs)
    m, u, x_then, v = [zero] * len(team), [zero] * len(team), team[0].weight, zero
    rates, refreshed, next_refresh, last_exchange = 0.0, 0, 0, -1
    for t in range(10**6):
        gradients = [w.gradient for w in team]
        if t == next_refresh:
            v = 0.999 * v + 0.001 * average(gradients) ** 2
            refreshed += 1
            next_refresh = t + 2 ** (refreshed // kappa)
        m = [0.9 * old + 0.1 * g for old, g in zip(m, gradients, strict=True)]
        for i, worker in enumerate(team):
            worker.weight = worker.weight - worker.rate * m[i] / (v + 1e-8).sqrt()
            u[i] = u[i] + worker.rate * m[i]
        rates += team[0].rate
        interval = 1 if t < warmup else min(longest, 2 ** ((t - warmup) // double))
        if t - last_exchange >= interval:
            total = squeeze.mean(u)
            x_then = x_then - total / (v + 1e-8).sqrt()
            m, u = [total / rates] * len(team), [zero] * len(team)
            rates, last_exchange = 0.0, t
            for worker in team:
                worker.weight = x_then
        yield
