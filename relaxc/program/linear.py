"""A body as a linear recurrence: what becomes of a push from outside, when nothing else comes.

Workers' values are taken apart into the eigenvectors of the mixing matrix W. In one of them, with eigenvalue `mode`, a
mix multiplies by `mode`, and the body is a small matrix over weight and the states. A mode other than 1 is a
disagreement, of which a mean leaves nothing; in mode 1, what all have in common, a mean leaves all.

What comes from outside (`+step`, the optimiser's movement; `+input`, gradients and the optimiser's states; `+lost.N`,
what the code of place N loses) are columns of their own. A function that is not linear gives another input where it is
taken of inputs alone; of anything else the body can't be judged: Unjudged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import lcm

from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Constant,
    Decode,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Phase,
    Read,
    Statement,
    Step,
)  # fmt: skip
from relaxc.wire.numbers import evaluate

LONGEST_CYCLE = 2000
"""Iterations after which blocks run as before, at most; beyond that a body is not judged."""

Parts = Mapping[str, complex]
"""How often a value has each name: weight and the states at the iteration's start, and inputs."""


class Unjudged(Exception):
    """The body is not linear, or not known well enough."""


@dataclass(frozen=True, slots=True)
class Value:
    """`number` where it is the same known number on all workers; `parts` is then empty."""

    parts: Parts = field(default_factory=dict)
    number: float | None = None

    @property
    def outside(self) -> bool:
        return all(name.startswith("+") for name in self.parts)


NOTHING = Value()
INPUT = Value({"+input": 1.0})


@dataclass(frozen=True, slots=True)
class Iteration:
    """Name to parts: what weight and the states are at the end of an iteration."""

    after: Mapping[str, Parts]

    def inputs(self) -> set[str]:
        return {name for parts in self.after.values() for name in parts if name.startswith("+")}


def variables(body: Body) -> tuple[str, ...]:
    return ("weight", *(state.name for state in body.states if state.shape == "tensor"))


def iteration(body: Body, phase: str, runs: frozenset[int], mode: complex, t: float | None = None) -> Iteration:
    """One iteration in a phase in which these blocks run. Raises Unjudged."""
    one = _Iteration(phase, runs, mode, {"t": Value(number=t)} if t is not None else {})
    for name in variables(body):
        one.names[name] = Value({name: 1.0})
    one.statements(body.statements)
    return Iteration({name: one.names[name].parts for name in variables(body)})


def cycle(body: Body, phase: str) -> list[frozenset[int]]:
    """Which blocks run in each iteration, until it begins again. A random period counts as one of 1."""
    statements = [s for s in body.statements if not isinstance(s, Phase) or s.name == phase]
    length = _length(tuple(statements), 1)
    if length > LONGEST_CYCLE:
        raise Unjudged
    counts: dict[int, int] = {}
    return [frozenset(_running(tuple(statements), counts, phase)) for _ in range(length)]


def _length(statements: tuple[Statement, ...], outer: int) -> int:
    length = outer
    for statement in statements:
        if isinstance(statement, Every):
            length = lcm(length, _length(statement.body, outer * _period(statement)))
        elif isinstance(statement, Phase):
            length = lcm(length, _length(statement.body, outer))
    return length


def _period(every: Every) -> int:
    if every.how == "geometric":
        return 1
    if not isinstance(every.period, Constant):
        raise Unjudged
    return int(every.period.value)


def _running(statements: tuple[Statement, ...], counts: dict[int, int], phase: str) -> list[int]:
    found: list[int] = []
    for statement in statements:
        if isinstance(statement, Every):
            counts[statement.block] = counts.get(statement.block, 0) + 1
            if counts[statement.block] >= _period(statement):
                counts[statement.block] = 0
                found += [statement.block, *_running(statement.body, counts, phase)]
        elif isinstance(statement, Phase):
            found += _running(statement.body, counts, phase)
    return found


def reads_time(body: Body) -> bool:
    from relaxc.program.reads import expressions, reads

    return any("t" in reads(e) for e in expressions(body.statements))


@dataclass(slots=True)
class _Iteration:
    phase: str
    runs: frozenset[int]
    mode: complex
    names: dict[str, Value]

    def statements(self, statements: tuple[Statement, ...], top: bool = True) -> None:
        for statement in statements:
            self.statement(statement, top)

    def statement(self, statement: Statement, top: bool) -> None:
        match statement:
            case Let(name=name, value=value) | Assign(name=name, value=value):
                self.names[name] = self.value(value)
            case Step():
                self.step()
            case Every(block=block, body=body) if block in self.runs:
                self.statements(body, top=False)
            case Phase(name=name, body=body) if top:
                self.statements(body if name == self.phase else (), top=False)
            case After() | Phase():
                raise Unjudged

    def step(self) -> None:
        if not self.names.get("grad", INPUT).outside:
            raise Unjudged
        self.names["weight"] = _sum(self.names["weight"], Value({"+step": 1.0}), 1)

    def value(self, e: Expression) -> Value:
        match e:
            case Constant(value=value):
                return Value(number=value)
            case Read(name=name):
                return self.names.get(name, INPUT if name in ("grad", "rank") else NOTHING)
            case Optimizer(tensor=tensor):
                return INPUT if tensor else NOTHING
            case Apply(function=function, arguments=arguments):
                return _applied(function, [self.value(a) for a in arguments])
            case Encode(value=value, place=place):
                return _sum(self.value(value), Value({f"+lost.{place}": 1.0}), -1)
            case Decode(code=code):
                return self.value(code)
            case Exchange():
                return self.exchange(e)
        raise Unjudged

    def exchange(self, e: Exchange) -> Value:
        value = self.value(e.value)
        if e.kind == "mix":
            return _scaled(value, self.mode)
        if e.kind == "mean":
            return value if self.mode == 1 else NOTHING
        if e.kind == "sum" and self.mode != 1:
            return NOTHING
        raise Unjudged


def _applied(function: str, given: list[Value]) -> Value:
    numbers = [v.number for v in given if v.number is not None]
    if len(numbers) == len(given):
        return Value(number=evaluate((function, *numbers), {}))
    match function, given:
        case "neg", [a]:
            return _scaled(a, -1)
        case "+", [a, b]:
            return _sum(a, b, 1)
        case "-", [a, b]:
            return _sum(a, b, -1)
        case "*", [a, b] if a.number is not None:
            return _scaled(b, a.number)
        case "*", [a, b] if b.number is not None:
            return _scaled(a, b.number)
        case "/", [a, b] if b.number:
            return _scaled(a, 1 / b.number)
    return _bent(given)


def _bent(given: list[Value]) -> Value:
    if not all(v.outside for v in given):
        raise Unjudged
    return INPUT if any(v.parts for v in given) else NOTHING


def _scaled(a: Value, by: complex) -> Value:
    if a.number is not None:
        return NOTHING
    return Value({name: by * share for name, share in a.parts.items()})


def _sum(a: Value, b: Value, sign: int) -> Value:
    """A constant is the same on all workers, and no answer to a push."""
    return Value({name: a.parts.get(name, 0) + sign * b.parts.get(name, 0) for name in {**a.parts, **b.parts}})
