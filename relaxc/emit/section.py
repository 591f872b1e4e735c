"""Building a section: equal values are one value, each in the earliest stage in which its arguments are there."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from relaxc.emit.kernel import REDUCTIONS, Section, Store, Value

PER_ELEMENT = frozenset({"tensor", "residual", "total", "dither"})


@dataclass
class Builder:
    values: list[Value] = field(default_factory=list)
    stores: list[Store] = field(default_factory=list)
    known: dict[Value, int] = field(default_factory=dict)

    def add(self, op: str, *arguments: int, detail: float | None = None, per_element: bool = False) -> int:
        given = [self.values[a] for a in arguments]
        stage = max((v.stage for v in given), default=0) + (op in REDUCTIONS)
        varies = per_element or op in PER_ELEMENT or (op not in REDUCTIONS and any(v.per_element for v in given))
        value = Value(op, arguments, varies, stage, detail)
        if value not in self.known:
            self.known[value] = len(self.values)
            self.values.append(value)
        return self.known[value]

    def constant(self, number: float) -> int:
        return self.add("constant", detail=float(number))

    def name(self, value: int, name: str) -> None:
        if not self.values[value].name:
            self.values[value] = replace(self.values[value], name=name)

    def store(self, target: str, value: int, per_element: bool, field: int | None = None) -> None:
        self.stores.append(Store(target, value, per_element, self.values[value].stage, field))

    def store_last(self, target: str, value: int) -> None:
        """In the last stage: stages before it may load what this overwrites."""
        stage = max(s.stage for s in [*self.stores, Store(target, value, True, self.values[value].stage)])
        self.stores.append(Store(target, value, True, stage))

    def section(self) -> Section:
        """With only the values that a store needs."""
        needed: set[int] = set()
        waiting = [store.value for store in self.stores]
        while waiting:
            value = waiting.pop()
            if value not in needed:
                needed.add(value)
                waiting += self.values[value].arguments
        place = {old: new for new, old in enumerate(sorted(needed))}
        values = [self.values[old] for old in sorted(needed)]
        return Section(
            tuple(replace(v, arguments=tuple(place[a] for a in v.arguments)) for v in values),
            tuple(replace(s, value=place[s.value]) for s in self.stores),
        )
