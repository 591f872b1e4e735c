"""`relax gradients`, `weights`, `updates`, `momentum`: which algorithm of specs/knobs/ each statement stands for, and
which of its parameters each knob sets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.codecs import decodes_near
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.spec import Async, Names

Clauses = Mapping[str, syntax.Clause]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers from `least` up to `under`, neither of them where it is `open_` at that end; `why` is what others do."""

    least: float
    under: float
    why: str
    open_: bool = False

    def __contains__(self, value: float) -> bool:
        return (self.least < value if self.open_ else self.least <= value) and value < self.under

    @property
    def shown(self) -> str:
        first = f"{'above' if self.open_ else 'from'} {self.least:g}"
        return first if self.under == math.inf else f"{first}, below {self.under:g}"


@dataclass(frozen=True, slots=True)
class Knobs:
    """`parameters` maps a knob to the parameter that it sets, where the form that is chosen has it. `form` chooses the
    file. `idle` are knobs that are understood and do nothing here, with the reason. `in_step` are forms that are never
    asynchronous, with the reason. `within` are the numbers that make sense for a parameter."""

    parameters: Mapping[str, str]
    form: Callable[[Clauses, Names], str]
    idle: Mapping[str, str] = field(default_factory=dict)
    in_step: Mapping[str, str] = field(default_factory=dict)
    within: Mapping[str, Range] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        """The knobs, one name for each."""
        taken: dict[str, str] = {}
        for knob, parameter in self.parameters.items():
            taken.setdefault(parameter, knob)
        return tuple(taken.values())


def _gradients(clauses: Clauses, names: Names) -> str:
    return "gradients"


def _weights(clauses: Clauses, names: Names) -> str:
    """A plain mix of coded weights would keep the codec's error for ever."""
    clause = clauses.get("compress")
    if clause is None or (isinstance(clause.value, syntax.Name) and _is_none(clause.value, names)):
        if is_asynchronous(clauses, names):
            return "weights_async"
        return "weights_late" if _late(clauses, names) else "weights"
    use = Reader(names, {}, Report()).codec(clause.value)
    if use is None or not decodes_near(use):
        return "weights_compressed"
    return "weights_near_async" if is_asynchronous(clauses, names) else "weights_near"


def _is_none(e: syntax.Name, names: Names) -> bool:
    value = names.params.get(e.name, e)
    return isinstance(value, syntax.Name) and value.name == "none"


def _late(clauses: Clauses, names: Names) -> bool:
    """A delay with a mistake is one, too: the form that has it reports it."""
    return _delay(clauses, names) != 0


def _delay(clauses: Clauses, names: Names) -> int | Async | None:
    """None after a mistake."""
    clause = clauses.get("late")
    return 0 if clause is None else Reader(names, {}, Report()).delay(clause.value)


def is_asynchronous(clauses: Clauses, names: Names) -> bool:
    return isinstance(_delay(clauses, names), Async)


def _updates(clauses: Clauses, names: Names) -> str:
    if is_asynchronous(clauses, names):
        return "updates_async"
    return "updates_late" if _late(clauses, names) else "updates"


def _momentum(clauses: Clauses, names: Names) -> str:
    return "momentum"


MOMENTUM = Range(0.0, 1.0, "what is remembered would grow without end, or change its sign each time")
NO_TOPOLOGY = "an exact mean has no topology, only a mix of weights has"
KNOBS = {
    "gradients": Knobs(
        {"compress": "compress", "feedback": "feedback", "delay": "late", "route": "route", "topology": "route"},
        _gradients,
    ),
    "weights": Knobs(
        {"topology": "topology", "every": "period", "delay": "late", "compress": "compress", "gamma": "gamma"},
        _weights,
        {"route": "a mix goes to its neighbours in `topology`",
         "feedback": "what a codec loses is in the next change, or it decodes near"},
        {"weights_compressed": "each change counts from what its receivers have of all before it"},
    ),
    "updates": Knobs(
        {"every": "period", "compress": "compress", "rate": "rate", "momentum": "momentum", "delay": "late",
         "feedback": "feedback", "route": "route"},
        _updates,
        {"topology": NO_TOPOLOGY},
        within={"rate": Range(0.0, math.inf, "no step along what all have moved, or one away from it", open_=True),
                "momentum": MOMENTUM},
    ),
    "momentum": Knobs(
        {"warmup": "warmup", "compress": "compress", "feedback": "feedback", "b1": "b1", "b2": "b2", "eps": "eps"},
        _momentum,
        {"topology": NO_TOPOLOGY},
        within={"b1": MOMENTUM, "b2": MOMENTUM, "eps": Range(0.0, math.inf, "Adam divides by the root plus this")},
    ),
}  # fmt: skip

WITHOUT = {"gamma": "only a mix of coded weights, each sending its changes, has a gamma"}
"""Why a knob does nothing where the form has no such parameter."""
