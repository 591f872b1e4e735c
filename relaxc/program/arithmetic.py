"""The arithmetic of algorithms, on one worker's tensor of one parameter, as directly as numpy allows.

Numbers are the host's, in f64 (wire/numbers.py). Where a number meets a tensor, the largest subexpression that is a
number is evaluated first and rounded once to the arithmetic type; from there on each operation rounds to that type.
What the functions mean is in functions.py; here x / 0 is what IEEE says, infinite or NaN. A cell is an array of shape
().
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from relaxc.program.functions import ALGORITHM, Array, Function, norm, power
from relaxc.program.ir import Apply, Constant, Expression, Optimizer, Own, Read, Reduce
from relaxc.topology.topology import Topology
from relaxc.wire import numbers as host

OwnWeight = Callable[[Topology], float]


def no_round(topology: Topology) -> float:
    raise ValueError(f"own({topology}) outside of any round")


def name_of(e: Read | Optimizer) -> str:
    """What a name is called among numbers and tensors: optimizer.NAME with its prefix."""
    return f"optimizer.{e.name}" if isinstance(e, Optimizer) else e.name


def is_number(e: Expression, numbers: Container[str]) -> bool:
    """Whether `e` is made of constants and of these names alone."""
    match e:
        case Constant() | Own():
            return True
        case Read() | Optimizer():
            return name_of(e) in numbers
        case Apply(arguments=arguments):
            return all(is_number(a, numbers) for a in arguments)
    return False


def host_number(e: Expression, numbers: Mapping[str, float], own: OwnWeight = no_round) -> float:
    """The value of an expression that is a number."""
    return host.evaluate(spelled(e, own), numbers)


def spelled(e: Expression, own: OwnWeight = no_round) -> Any:
    """An expression that is a number, in the form of wire/numbers.py."""
    match e:
        case Constant(value=value):
            return value
        case Own(topology=topology):
            return own(topology)
        case Read() | Optimizer():
            return name_of(e)
        case Apply(function=function, arguments=arguments):
            return (function, *(spelled(a, own) for a in arguments))
    raise TypeError(f"not a number: {e}")


@dataclass
class Evaluator:
    """`real` is the arithmetic type, numpy's float32 or float64. `numbers` and `tensors` bind the names in scope;
    tensors have the shape (elements,) and that type, cells the shape (). `functions` says what each one means."""

    real: Any
    numbers: Mapping[str, float]
    tensors: Mapping[str, Array]
    own: OwnWeight = no_round
    functions: Mapping[str, Function] = field(default_factory=lambda: ALGORITHM)

    def value(self, e: Expression) -> float | Array:
        """A float where the whole of `e` is a number, else an array."""
        if is_number(e, self.numbers):
            return host_number(e, self.numbers, self.own)
        with np.errstate(all="ignore"):
            return self.array(e)

    def array(self, e: Expression) -> Array:
        if is_number(e, self.numbers):
            return np.asarray(host_number(e, self.numbers, self.own), self.real)
        match e:
            case Read() | Optimizer():
                return self.tensors[name_of(e)]
            case Apply(function="^", arguments=(base, exponent)):
                return self.typed(power(self.array(base), self.exponent(exponent), self.functions["/"]))
            case Apply(function=function, arguments=arguments):
                return self.typed(self.functions[function](*map(self.array, arguments)))
            case Reduce(function="norm", argument=argument):
                return self.typed(norm(np.atleast_2d(self.array(argument)))[0, 0])
        raise TypeError(f"no arithmetic: {e}")

    def exponent(self, e: Expression) -> float | Array:
        """A constant stays one: whether a power is a product is known when kernels are made."""
        return e.value if isinstance(e, Constant) else self.array(e)

    def typed(self, value: Any) -> Array:
        return np.asarray(value, self.real)


def settled(old: Array, new: float | Array) -> Array:
    """What a state holds after an assignment: element by element `new` where that is finite, else `old`."""
    with np.errstate(all="ignore"):
        given = np.broadcast_to(np.asarray(new, old.dtype), old.shape)
    return np.where(np.isfinite(given), given, old)
