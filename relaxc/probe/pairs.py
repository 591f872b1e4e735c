"""Which pairs of workers are measured, and which of them at the same time."""

from __future__ import annotations

from collections.abc import Sequence

Pair = tuple[int, int]
"""(sender, receiver)."""
ALONE_UP_TO = 8
"""So few workers are measured one pair at a time; among more, pairs that share no worker go together."""


def rounds(workers: int, per_machine: int) -> list[list[Pair]]:
    """Rounds of pairs, each pair in both directions. Among many workers on machines of several, the first of each stand
    for their machines, and the first two of each for what is within: others of a machine have the same link."""
    if workers <= ALONE_UP_TO:
        return [[(s, r)] for s in range(workers) for r in range(workers) if s != r]
    found = [_both_ways(matching) for matching in tournament(range(0, workers, per_machine))]
    if per_machine > 1:
        found.append(_both_ways([(first, first + 1) for first in range(0, workers, per_machine)]))
    return [one for pair in found for one in pair]


def _both_ways(matching: Sequence[Pair]) -> tuple[list[Pair], list[Pair]]:
    return list(matching), [(r, s) for s, r in matching]


def tournament(players: Sequence[int]) -> list[list[Pair]]:
    """Each meets each other once; in a round nobody plays twice (the circle method)."""
    circle: list[int | None] = [*players, *([None] if len(players) % 2 else [])]
    found = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        found.append([(a, b) for a, b in pairs if a is not None and b is not None])
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return found


def same_machine(pair: Pair, per_machine: int) -> bool:
    return pair[0] // per_machine == pair[1] // per_machine
