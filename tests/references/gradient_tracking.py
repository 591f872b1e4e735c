"""Gradient tracking (DIGing, Nedic et al. 2017, adapt then combine): y = W y + g - g_before; x = W (x - lr y)."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.team import Given, Team, mixed, place

MOMENTUM = 0


def rule(team: Team, given: Given) -> Iterator[None]:
    y, g_before = [0 * w.weight for w in team], [0 * w.weight for w in team]
    while True:
        g, matrix = [w.gradient for w in team], given.matrix(0)
        y = [a + new - old for a, new, old in zip(mixed(matrix, y), g, g_before, strict=True)]
        g_before = g
        place(team, mixed(matrix, [w.weight - w.rate * track for w, track in zip(team, y, strict=True)]))
        yield
