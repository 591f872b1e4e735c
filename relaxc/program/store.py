"""What the interpreter keeps of one parameter, and what it sees in one iteration."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from relaxc.program.arithmetic import settled
from relaxc.program.evaluate import round_to
from relaxc.program.exchange import Code, real_type
from relaxc.program.flights import Aloft, Awaited
from relaxc.program.functions import Array
from relaxc.program.ir import Body
from relaxc.wire.parameters import Parameter

Value = float | Array | Code
"""A number, a tensor of shape (elements,), a cell of shape (), or a code."""

Values = Any
"""A Value for each worker: a list, or, where many are run at once (simulate/together.py), an array with a row each."""


class Rule(Protocol):
    """The user's optimiser, as a program sees it. Arrays are flat, in the parameter's arithmetic type."""

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        """The new weight."""

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        """`lr`, or the setting `name`."""

    def state(self, worker: int, parameter: Parameter, name: str) -> Array: ...


@dataclass(frozen=True)
class Late:
    """A launched block that has not landed: when it is due, its lets, its round, and which workers had a gradient at
    the launch."""

    due: int
    lets: dict[str, Values]
    round: int
    present: tuple[bool, ...]


@dataclass
class Store:
    """What a parameter keeps from one iteration to the next. Counters and queues are by block."""

    weight: Values
    states: dict[str, Values] = field(default_factory=dict)
    runs: dict[int, int] = field(default_factory=dict)
    reached: dict[int, int] = field(default_factory=dict)
    waited: dict[int, int] = field(default_factory=dict)
    queues: dict[int, deque[Late]] = field(default_factory=dict)
    launches: dict[tuple[int, int], int] = field(default_factory=dict)
    """Of each `after async`, by block and worker."""
    aloft: dict[tuple[int, int], Aloft] = field(default_factory=dict)
    pending: dict[tuple[int, int], list[Awaited]] = field(default_factory=dict)
    """The awaited lets of a launch in the making."""


@dataclass(frozen=True)
class Scope:
    """One iteration of one parameter, in one block. `grad` and `present` are of the iteration: `present[w]` tells
    whether worker w has a gradient to step with. `round` is that of the block's exchanges. `members` are the
    workers for whom it is carried out; values of others are None. `launching` and `landing`: who does so in this
    iteration, by block of an `after async`."""

    parameter: Parameter
    body: Body
    store: Store
    grad: Values
    present: list[bool]
    lets: dict[str, Values]
    round: int
    members: tuple[int, ...]
    launching: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    landing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    @property
    def real(self) -> np.dtype[Any]:
        return real_type(self.parameter)

    def tensor(self, value: float | Array) -> Array:
        return np.broadcast_to(np.asarray(value, self.real), (self.parameter.elements,)).copy()

    def stored(self, value: float | Array) -> Array:
        """As the parameter's dtype holds it."""
        return round_to(self.tensor(value), self.parameter.dtype)


def first_value(value: float | Array, shape: str, scope: Scope) -> float | Array:
    """A state's first value."""
    if shape == "number":
        return float(value)
    return np.asarray(value, scope.real) if shape == "cell" else scope.tensor(value)


def updated(old: float | Array, new: float | Array) -> float | Array:
    """What a state holds after an assignment: no state ever becomes non-finite."""
    if isinstance(old, float):
        number = float(new)
        return number if math.isfinite(number) else old
    return settled(old, new)
