"""The functions of the language: one table, of how many arguments each takes where it may stand."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Where(Enum):
    """Where an expression stands; the value is how messages call that place."""

    CONSTANT = "a constant"
    ALGORITHM = "an algorithm"
    HEADER = "the header of a block"
    INITIAL = "the start of a state"
    CODEC = "a codec"


NUMBERS = frozenset({Where.ALGORITHM, Where.HEADER, Where.INITIAL})
"""Places of an algorithm where arithmetic is done."""


@dataclass(frozen=True, slots=True)
class Function:
    """`takes` maps a place to the least and the largest number of arguments; where it is absent, the function is not
    allowed. `keywords` are arguments that are given by name."""

    takes: dict[Where, tuple[int, int]]
    keywords: tuple[str, ...] = ()


def _arithmetic(count: int, constant: bool = True) -> Function:
    places = {*NUMBERS, Where.CODEC, *([Where.CONSTANT] if constant else [])}
    return Function(dict.fromkeys(places, (count, count)))


def _in_algorithm(count: int, *keywords: str) -> Function:
    return Function({Where.ALGORITHM: (count, count)}, keywords)


def _reduction(algorithm: Function | None = None) -> Function:
    """Of a codec, over its block; in an algorithm it is something else or nothing."""
    other = algorithm or Function({})
    return Function({**other.takes, Where.CODEC: (1, 1)}, other.keywords)


def _extended(function: Function, least: int, most: int) -> Function:
    """`function`, in a codec with fewer or more arguments too."""
    return Function({**function.takes, Where.CODEC: (least, most)})


FUNCTIONS: dict[str, Function] = {
    **dict.fromkeys(("sqrt", "abs", "sign", "exp", "log", "log2", "logb", "floor"), _arithmetic(1)),
    "round": _extended(_arithmetic(1), 1, 2),
    **dict.fromkeys(("min", "max"), _extended(_arithmetic(2), 1, 2)),
    "mod": _arithmetic(2),
    "wrap": _arithmetic(2, constant=False),
    "clamp": _arithmetic(3),
    "where": _arithmetic(3, constant=False),
    "norm": _reduction(_in_algorithm(1)),
    "dither": Function({Where.CODEC: (1, 1)}),
    **dict.fromkeys(("dct", "idct"), Function({Where.CODEC: (2, 2)})),
    "mean": _reduction(_in_algorithm(1, "compress", "feedback", "route")),
    "sum": _reduction(_in_algorithm(1, "compress", "feedback", "route")),
    "mix": _in_algorithm(2, "compress", "feedback"),
    "push": _in_algorithm(2, "compress", "feedback"),
    "relay": _in_algorithm(2, "compress", "feedback"),
    "own": _in_algorithm(1),
    "encode": _in_algorithm(2),
    "decode": _in_algorithm(1),
    "delay": _in_algorithm(2),
}

ELEMENTWISE = {name: f.takes[Where.HEADER][0] for name, f in FUNCTIONS.items() if Where.HEADER in f.takes}
"""Those that are arithmetic, element by element, with how many arguments each takes. Behind this table a new one
stands in wire/numbers.py, program/functions.py, emit/arithmetic.py and relaxrt/arithmetic.h, which tests hold
together; what it costs is in DEAR of emit/cpu_costs.py and emit/cuda_costs.py, else it counts as an addition."""

PERIODS = ("geometric", "staggered")
"""What stands around the number of a period: `every geometric(4)`."""

REDUCTIONS = ("min", "max", "sum", "mean", "norm")
"""Functions that, of one argument in a codec, reach over its block."""

TRANSFORMS = ("dct", "idct")
"""Functions of a codec that make a block of a block; their second argument is a constant."""

EXCHANGES = ("mean", "sum", "mix", "push", "relay")


def arity(function: str, where: Where) -> tuple[int, int] | None:
    """The least and the largest number of arguments; None where it may not stand."""
    return FUNCTIONS[function].takes.get(where)


def many(least: int, most: int) -> str:
    """`one argument`, `2 or 3 arguments`"""
    if least == most:
        return "one argument" if most == 1 else f"{most} arguments"
    return f"{least} to {most} arguments" if most > least + 1 else f"{least} or {most} arguments"
