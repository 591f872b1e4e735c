"""NoLoCo (Kolehmainen et al. 2025): in pairs, m = beta m + a mean(x - phi) + a (mean(phi) - phi_i); phi += m; x = phi."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, place, step_alone

SETTINGS = {"period": 5}


def rule(team: Team, given: Given, period: int, rate: float = 0.7, momentum: float = 0.5) -> Iterator[None]:
    phi, m = [w.weight for w in team], [0 * w.weight for w in team]
    for t in range(1, 10**6):
        step_alone(team)
        if t % period == 0:
            partner = [int(row.index_fill(0, row.new_tensor([i]).long(), -1).argmax()) if row[i] < 1 else i
                       for i, row in enumerate(given.matrix(t // period - 1))]  # fmt: skip
            moved = [w.weight - p for w, p in zip(team, phi, strict=True)]
            for i, j in enumerate(partner):
                m[i] = momentum * m[i] + rate * (moved[i] + moved[j]) / 2 + rate * ((phi[i] + phi[j]) / 2 - phi[i])
            phi = [p + step for p, step in zip(phi, m, strict=True)]
            place(team, phi)
        yield
