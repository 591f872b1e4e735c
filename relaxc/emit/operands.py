"""The operands of a kernel that is being built, numbered in the order in which they are first used."""

from __future__ import annotations

from dataclasses import dataclass, field

from relaxc.emit.kernel import Operand
from relaxc.emit.section import Builder

ONE = ("cell", "block")
"""Types of which a block sees one number."""


@dataclass
class Operands:
    found: dict[str, Operand] = field(default_factory=dict)

    def number(self, name: str, type: str) -> int:
        self.found.setdefault(name, Operand(name, type))
        return list(self.found).index(name)

    def load(self, builder: Builder, name: str, type: str) -> int:
        value = builder.add("operand", detail=self.number(name, type), per_element=type not in ONE)
        builder.name(value, name)
        return value

    def store(self, builder: Builder, name: str, type: str, value: int) -> None:
        builder.store("operand", value, type not in ONE, self.number(name, type))

    @property
    def all(self) -> tuple[Operand, ...]:
        return tuple(self.found.values())
