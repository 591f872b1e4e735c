"""What things cost a CPU: which values per element it computes again, and for which kernels wide vectors pay."""

from __future__ import annotations

from collections.abc import Sequence

from relaxc.emit import keeping
from relaxc.emit.kernel import Section

FREE = ("operand", "total", "constant", "near")
DEAR = {"divide": 5, "over": 5, "sqrt": 5, "dither": 20, "exp": 50, "log": 50, "log2": 50, "power": 50}
COSTS = keeping.Costs({**dict.fromkeys(FREE, 0), **DEAR}, again=2)
"""A load and up to two operations on it cost less than a store and a load in each later stage."""


def scratch(section: Section) -> frozenset[int]:
    return keeping.kept(section, COSTS)


def wide(operations: Sequence[str]) -> bool:
    """Whether a kernel takes the widest vectors. Sums in the order of their lanes don't gain, other work does. Measured
    for 16 MB: encoding by modulo 8bit, which dithers and adds up, 8.7 -> 5.1 ms; its check, which only adds up,
    2.5 -> 2.9; the mean of two messages of plain numbers 2.1 -> 1.5."""
    return "reduce_sum" not in operations or "dither" in operations
