"""Which test trains on how many real workers."""

from __future__ import annotations

from collections.abc import Iterable

NUMBERS = (1, 2, 3, 4, 5)


def on_all(names: Iterable[str]) -> list[tuple[str, int]]:
    return [(name, workers) for name in names for workers in NUMBERS]


def on_two(names: Iterable[str]) -> list[tuple[str, int]]:
    """Each on two of the numbers, in turn."""
    return [(name, NUMBERS[(n + turn) % len(NUMBERS)]) for n, name in enumerate(names) for turn in (0, 2)]
