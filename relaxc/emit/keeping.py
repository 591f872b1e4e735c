"""Which values per element a target puts into scratch for later stages, and which it computes again, by what things
cost it. What is made of a whole block is in scratch anyway, and so is what it is made of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from relaxc.emit.kernel import BLOCKWISE, REDUCTIONS, Section
from relaxc.emit.stages import needed, roots


@dataclass(frozen=True)
class Costs:
    """Of operations, in additions, about; what is not named costs one. What costs more than `again` is kept."""

    named: Mapping[str, int]
    again: int


def kept(section: Section, costs: Costs, sums: bool = False) -> frozenset[int]:
    """`sums`: whatever is added up in order is put into scratch first."""
    found: set[int] = set()
    for number, made in enumerate(section.values):
        if made.op in BLOCKWISE:
            found |= {number, *made.arguments}
        elif sums and made.op == "reduce_sum":
            found |= {a for a in made.arguments if section.values[a].per_element}
    for stage in range(section.stages):
        for value in _shared_in(section, stage):
            if _cost(section, value, found, costs) > costs.again:
                found.add(value)
    for stage in range(1, section.stages):
        for value in _carried_into(section, stage):
            if _cost(section, value, found, costs) > costs.again:
                found.add(value)
    return frozenset(found)


def _shared_in(section: Section, stage: int) -> Iterator[int]:
    """Values of a stage that its run in any order computes, and its run that adds up in order uses directly."""
    values = section.values
    reduced = [v for v in values if v.op in REDUCTIONS and v.stage == stage + 1]
    sums = [v.arguments[0] for v in reduced if v.op == "reduce_sum"]
    stores = [s.value for s in section.stores if s.per_element and s.stage == stage]
    others = [v.arguments[0] for v in reduced if v.op != "reduce_sum"] + stores
    computed = {n for n in needed(section, others, stage) if values[n].stage == stage}
    used = set(sums)
    for number in needed(section, sums, stage):
        if number not in computed:
            used |= set(values[number].arguments)
    yield from sorted(computed & used)


def _carried_into(section: Section, stage: int) -> Iterator[int]:
    """Values per element of earlier stages that this stage uses directly, in order."""
    wanted = roots(section, stage)
    carried = {w for w in wanted if section.values[w].per_element and section.values[w].stage < stage}
    for number in needed(section, wanted, stage):
        if section.values[number].stage == stage:
            arguments = section.values[number].arguments
            carried |= {a for a in arguments if section.values[a].per_element and section.values[a].stage < stage}
    yield from sorted(carried)


def _cost(section: Section, number: int, scratch: set[int], costs: Costs) -> int:
    """Operations to compute a value again, shared ones counted once."""
    total, seen, waiting = 0, set(), [number]
    while waiting:
        at = waiting.pop()
        value = section.values[at]
        if at in seen or at in scratch or not value.per_element:
            continue
        seen.add(at)
        total += costs.named.get(value.op, 1)
        waiting += value.arguments
    return total
