"""DeepSqueeze (Tang et al. 2019): v = x - lr g + e; e = v - C(v); x = x - lr g + gamma sum_j (W_ij - I_ij) C(v_j)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import minmax
from references.harness.team import Given, Team, mixed, place, step_alone


def rule(team: Team, given: Given, gamma: float = 0.4) -> Iterator[None]:
    error = [0 * w.weight for w in team]
    while True:
        step_alone(team)
        wanted = [w.weight + e for w, e in zip(team, error, strict=True)]
        sent = [minmax(4, v) for v in wanted]
        error = [v - q for v, q in zip(wanted, sent, strict=True)]
        around = mixed(given.matrix(0), sent)
        place(team, [w.weight + gamma * (a - q) for w, a, q in zip(team, around, sent, strict=True)])
        yield
