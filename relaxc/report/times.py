"""Seconds as people read them."""

from __future__ import annotations

UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def shown(seconds: float) -> str:
    """Three figures: 1.23 s, 45.6 ms, 789 us."""
    for size, unit in UNITS:
        if abs(seconds) >= size * 0.9995:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.2g} us" if seconds else "0"
