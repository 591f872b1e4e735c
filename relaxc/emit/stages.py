"""A section as runs over the elements of a block, for a target that works on a block at a time.

Which values of earlier stages are put into scratch is the target's choice, made by what things cost it (keeping.py);
the others are computed again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from relaxc.emit.kernel import BLOCKWISE, REDUCTIONS, Section, Store


@dataclass(frozen=True, slots=True)
class Loop:
    """One run over the elements. `ordered` ones add up in the order of wire/sums.py; the others reduce in any order,
    store, and put values into scratch. `last` is the run in which operands are stored, if there are several."""

    ordered: bool
    values: list[int]
    reductions: list[int]
    stores: list[Store]
    scratch: list[int]
    last: bool = False


@dataclass(frozen=True)
class Staged:
    section: Section
    scratch: frozenset[int]

    def scalars(self, stage: int) -> list[int]:
        """The values per block that a stage computes before it runs over the elements."""
        numbered = enumerate(self.section.values)
        return [i for i, v in numbered if v.stage == stage and not v.per_element and v.op not in REDUCTIONS]

    def blockwise(self, stage: int) -> list[int]:
        """What a stage makes of whole blocks before it does anything else; its argument and its result are in
        scratch."""
        return [i for i, v in enumerate(self.section.values) if v.stage == stage and v.op in BLOCKWISE]

    def scalar_stores(self, stage: int) -> list[Store]:
        return [s for s in self.section.stores if s.stage == stage and not s.per_element]

    def loops(self, stage: int, elsewhere: Collection[Store] = ()) -> Iterator[Loop]:
        """`elsewhere` are stores that no run over the elements does."""
        values = self.section.values
        reduced = [i for i, v in enumerate(values) if v.stage == stage + 1 and v.op in REDUCTIONS]
        sums = [r for r in reduced if values[r].op == "reduce_sum"]
        others = [r for r in reduced if values[r].op != "reduce_sum"]
        here = [s for s in self.section.stores if s.stage == stage and s.per_element and s not in elsewhere]
        stores = [s for s in here if not of_block(self.section, s)]
        scratch = [k for k in sorted(self.scratch) if values[k].stage == stage and values[k].op not in BLOCKWISE]
        wanted = [values[r].arguments[0] for r in others] + [s.value for s in stores] + scratch
        if others or stores or scratch:
            last = stage > 0 and stage == self.section.stages - 1
            yield Loop(False, needed(self.section, wanted, stage, self.scratch), others, stores, scratch, last)
        if sums:
            wanted = [values[r].arguments[0] for r in sums]
            # What this stage puts into scratch is there.
            yield Loop(True, needed(self.section, wanted, stage + 1, self.scratch), sums, [], [])

    def from_scratch(self, number: int, stage: int, ordered: bool) -> bool:
        value = self.section.values[number]
        return value.op in BLOCKWISE or (number in self.scratch and value.stage < stage + ordered)


def of_block(section: Section, store: Store) -> bool:
    """Whether a field is written as a whole: no run over the elements does it."""
    return store.target == "field" and section.values[store.value].op == "top"


def roots(section: Section, stage: int) -> list[int]:
    """What the run over the elements in `stage` is for: arguments of reductions and stores."""
    reduced = [v.arguments[0] for v in section.values if v.op in REDUCTIONS and v.stage == stage + 1]
    return [*reduced, *(s.value for s in section.stores if s.per_element and s.stage == stage)]


def needed(section: Section, wanted: list[int], stage: int, scratch: frozenset[int] = frozenset()) -> list[int]:
    """The values per element to have in hand, in order, to compute `wanted` in `stage`: what is in scratch ends the
    search."""
    found: set[int] = set()
    waiting = [w for w in wanted if section.values[w].per_element]
    while waiting:
        number = waiting.pop()
        if number in found:
            continue
        found.add(number)
        value = section.values[number]
        if value.op not in BLOCKWISE and not (number in scratch and value.stage < stage):
            waiting += [a for a in section.values[number].arguments if section.values[a].per_element]
    return sorted(found)
