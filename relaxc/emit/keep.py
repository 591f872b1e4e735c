"""Which values per element are kept in scratch for later stages, and which are computed again.

A load and up to two operations on it cost less than a store and a load in each later stage: they are computed again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from relaxc.emit.kernel import REDUCTIONS, Section

FREE = frozenset({"tensor", "residual", "total", "constant"})
DEAR = {"divide": 5, "over": 5, "sqrt": 5, "dither": 20, "power": 50}
"""In additions, about; what is not named here costs one."""
AGAIN = 2


def keep(section: Section) -> Section:
    kept: set[int] = set()
    for stage in range(1, section.stages):
        for value in _carried_into(section, stage):
            if _cost(section, value, kept) > AGAIN:
                kept.add(value)
    return replace(section, kept=frozenset(kept))


def roots(section: Section, stage: int, kept: frozenset[int]) -> list[int]:
    """What the run over the elements in `stage` is for: arguments of reductions, stores, values to keep."""
    reduced = [v.arguments[0] for v in section.values if v.op in REDUCTIONS and v.stage == stage + 1]
    stored = [s.value for s in section.stores if s.per_element and s.stage == stage]
    return [*reduced, *stored, *(k for k in sorted(kept) if section.values[k].stage == stage)]


def needed(section: Section, wanted: list[int], stage: int) -> list[int]:
    """The values per element to have in hand, in order, to compute `wanted` in `stage`: kept ones end the search."""
    found: set[int] = set()
    waiting = [w for w in wanted if section.values[w].per_element]
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        if not (number in section.kept and section.values[number].stage < stage):
            waiting += [a for a in section.values[number].arguments if section.values[a].per_element]
    return sorted(found)


def _carried_into(section: Section, stage: int) -> Iterator[int]:
    """Values per element of earlier stages that this stage uses directly, in order."""
    wanted = roots(section, stage, frozenset())
    carried = {w for w in wanted if section.values[w].per_element and section.values[w].stage < stage}
    for number in needed(section, wanted, stage):
        if section.values[number].stage == stage:
            arguments = section.values[number].arguments
            carried |= {a for a in arguments if section.values[a].per_element and section.values[a].stage < stage}
    yield from sorted(carried)


def _cost(section: Section, number: int, kept: set[int]) -> int:
    """Operations to compute a value again, shared ones counted once."""
    total, seen, waiting = 0, set(), [number]
    while waiting:
        at = waiting.pop()
        value = section.values[at]
        if at in seen or at in kept or not value.per_element:
            continue
        seen.add(at)
        total += 0 if value.op in FREE else DEAR.get(value.op, 1)
        waiting += value.arguments
    return total
