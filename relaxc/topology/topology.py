"""The value that a spec's `topology = ...` has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

OF_A_FILE = ("edges", "arrows")
"""Topologies whose arguments are the lines of a file."""


@dataclass(frozen=True, slots=True)
class Topology:
    """ring, torus, lazy(ring), ... by `name`. `arguments` are an inner topology, for hierarchy with the workers of a
    machine behind it, or for `edges` and `arrows` those of its file, (i, j) or (i, j, weight), so that a plan needs no
    other file. Plain data: it is stored in plans."""

    name: str
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        if self.name in OF_A_FILE:
            return f"{self.name}({len(self.arguments)} {self.name})"
        return f"{self.name}({', '.join(map(written, self.arguments))})" if self.arguments else self.name


def written(argument: object) -> str:
    """As in a spec: a number is the workers of a machine."""
    return f"inner = {argument}" if isinstance(argument, int) else str(argument)


def to_plain(topology: Topology) -> list[Any]:
    """[name, arguments], an inner topology likewise, an edge as a list: what JSON can hold."""
    return [topology.name, [_plain(argument) for argument in topology.arguments]]


def _plain(argument: object) -> object:
    if isinstance(argument, Topology):
        return to_plain(argument)
    return list(argument) if isinstance(argument, tuple) else argument


def from_plain(value: Sequence[Any]) -> Topology:
    """The topology that `to_plain` made `value` of."""
    name, arguments = value
    return Topology(name, tuple(_argument(argument) for argument in arguments))


def _argument(value: Any) -> object:
    if not isinstance(value, list | tuple):
        return value
    return from_plain(value) if isinstance(value[0], str) else tuple(value)
