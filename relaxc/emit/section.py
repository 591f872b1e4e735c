"""Building a section: equal values are one value, each in the earliest stage in which its arguments are there."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace

from relaxc.emit.kernel import BLOCKWISE, REDUCTIONS, Section, Store, Value

PER_ELEMENT = frozenset({"total", "dither", "chosen"})


@dataclass
class Builder:
    values: list[Value] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    known: dict[Value, int] = field(default_factory=dict)

    def add(self, op: str, *arguments: int, detail: float | None = None, per_element: bool = False) -> int:
        given = [self.values[a] for a in arguments]
        stage = max((v.stage for v in given), default=0) + (op in REDUCTIONS or op in BLOCKWISE)
        varies = per_element or op in PER_ELEMENT or (op not in REDUCTIONS and any(v.per_element for v in given))
        value = Value(op, arguments, varies, stage, detail)
        if value not in self.known:
            self.known[value] = len(self.values)
            self.values.append(value)
        return self.known[value]

    def constant(self, number: float) -> int:
        if number == 0 and math.copysign(1, number) < 0:  # which is equal to 0, and would be that value
            return self.add("neg", self.constant(0))
        return self.add("constant", detail=float(number))

    def name(self, value: int, name: str) -> None:
        if not self.values[value].name:
            self.values[value] = replace(self.values[value], name=re.sub(r"\W", "_", name, flags=re.ASCII))

    def store(self, target: str, value: int, per_element: bool, number: int = 0) -> None:
        self.stores.append(Store(target, value, per_element, self.values[value].stage, number))

    def section(self) -> Section:
        """With only the values that a store needs. Operands are stored last: stages before may load them."""
        needed: set[int] = set()
        waiting = [store.value for store in self.stores]
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += self.values[value].arguments
        last = max((s.stage for s in self.stores), default=0)
        place = {old: new for new, old in enumerate(sorted(needed))}
        values = [self.values[old] for old in sorted(needed)]
        return Section(
            tuple(replace(v, arguments=tuple(place[a] for a in v.arguments)) for v in values),
            tuple(
                replace(s, value=place[s.value], stage=last if s.target == "operand" else s.stage) for s in self.stores
            ),
        )
