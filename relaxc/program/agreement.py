"""Whether a value is the same on all workers, by the typing rules: static < replicated < local.

The body is followed from top to bottom until nothing changes any more. Its phases follow one another in time, so each
is a body of its own, entered with what the one before left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Decode,
    Dither,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Own,
    Phase,
    Read,
    Reduce,
    Statement,
    Step,
)  # fmt: skip
from relaxc.wire.routes import NEIGHBOURLY


class Agreement(IntEnum):
    STATIC = 0
    REPLICATED = 1
    LOCAL = 2

    def __str__(self) -> str:
        return self.name.lower()


STATIC, REPLICATED, LOCAL = Agreement

AT_ATTACH = {
    "weight": REPLICATED, "optimizer": REPLICATED, "grad": LOCAL, "lr": REPLICATED, "t": STATIC, "workers": STATIC,
    "rank": LOCAL,
}  # fmt: skip

Names = dict[str, Agreement]


@dataclass(slots=True)
class Agreements:
    """`weight` is its agreement at the end of an iteration in each phase of the body, by name ("" where it has none).
    `after_runs` tells whether weights are replicated at the end of each run of some block; `periods` is the agreement
    of each `every`'s period by block number."""

    weight: dict[str, Agreement] = field(default_factory=dict)
    after_runs: bool = False
    periods: dict[int, Agreement] = field(default_factory=dict)

    @property
    def word(self) -> str:
        """replicated, runs, or local: what a body's weights are at the end of an iteration, at worst."""
        if max(self.weight.values()) < LOCAL:
            return "replicated"
        return "runs" if self.after_runs else "local"


def agreements_of(body: Body) -> Agreements:
    found = Agreements()
    names: Names = dict(AT_ATTACH)
    for state in body.states:
        names[state.name] = agreement_of(state.initial, names)
    for phase in phases_of(body.statements):
        names = _settled(body, phase, names, found)
    return found


def phases_of(statements: tuple[Statement, ...]) -> tuple[str, ...]:
    """The phases of a body, one after the other; "" stands for what comes when the last has ended, or for all where
    there are none."""
    phases = {s.name: s.end for s in statements if isinstance(s, Phase)}
    return tuple(phases) if None in phases.values() else (*phases, "")


def _settled(body: Body, phase: str, names: Names, found: Agreements) -> Names:
    """What holds after any number of iterations in `phase`, entered with `names`. Of `after_runs` only the last pass
    counts: in those before, names that are local may still be replicated."""
    earlier = found.after_runs
    while True:
        found.after_runs = earlier
        run = _Run(phase, dict(names), found)
        run.names["grad"] = LOCAL
        run.statements(body.statements, STATIC, top=True)
        joined = {name: max(agreement, run.names[name]) for name, agreement in names.items()}
        if joined == names:
            found.weight[phase] = run.names["weight"]
            return joined
        names = joined


@dataclass(slots=True)
class _Run:
    """One iteration in one phase. `before` has, for each block that is open, what names were when it began, for those
    that it has changed."""

    phase: str
    names: Names
    found: Agreements
    before: list[dict[str, Agreement | None]] = field(default_factory=list)

    def give(self, name: str, agreement: Agreement) -> None:
        if self.before:
            self.before[-1].setdefault(name, self.names.get(name))
        self.names[name] = agreement

    def statements(self, statements: tuple[Statement, ...], guard: Agreement, top: bool = False) -> None:
        for statement in statements:
            self.statement(statement, guard, top)

    def statement(self, statement: Statement, guard: Agreement, top: bool) -> None:
        match statement:
            case Let(name=name, value=value):
                self.give(name, agreement_of(value, self.names))
            case Assign(name=name, value=value):
                self.give(name, max(agreement_of(value, self.names), guard))
            case Step():
                self.step(guard)
            case Every(body=body):
                self.sometimes(body, max(guard, self.due(statement)))
            case After(body=body):
                own_time = LOCAL if statement.asynchronous else guard
                self.sometimes(body, own_time, lands=True)
            case Phase(name=name, body=body) if top:
                self.statements(body if name == self.phase else (), guard)
            case Phase(body=body):
                self.sometimes(body, guard)

    def step(self, guard: Agreement) -> None:
        names = self.names
        self.give("weight", max(names["weight"], names["grad"], names["optimizer"], guard, REPLICATED))
        self.give("optimizer", max(names["optimizer"], names["grad"], names["weight"]))

    def due(self, every: Every) -> Agreement:
        """The agreement of whether a block runs."""
        drawn = REPLICATED if every.how == "geometric" else STATIC
        due = max(agreement_of(every.period, self.names), drawn)
        self.found.periods[every.block] = max(due, self.found.periods.get(every.block, STATIC))
        return due

    def sometimes(self, body: tuple[Statement, ...], guard: Agreement, lands: bool = False) -> None:
        """A block that runs in some iterations only. A gradient that lands late has landed: `step` waits for it."""
        self.before.append({})
        self.statements(body, guard)
        before = self.before.pop()
        self.found.after_runs |= "weight" in before and self.names["weight"] < LOCAL
        if lands:
            before.pop("grad", None)
        for name, agreement in before.items():
            if self.before:
                self.before[-1].setdefault(name, agreement)
            if agreement is not None:
                self.names[name] = max(self.names[name], agreement)


def agreement_of(e: Expression, names: Mapping[str, Agreement]) -> Agreement:
    match e:
        case Read(name=name):
            return names.get(name, STATIC)
        case Optimizer(tensor=tensor):
            return names["optimizer"] if tensor else REPLICATED
        case Own():
            return LOCAL
        case Encode(value=value, codec=codec):
            return LOCAL if codec.dithers else agreement_of(value, names)
        case Exchange(kind=kind):
            return LOCAL if kind in NEIGHBOURLY else REPLICATED
    return max((agreement_of(part, names) for part in _parts(e)), default=STATIC)


def _parts(e: Expression) -> Iterator[Expression]:
    match e:
        case Apply(arguments=arguments):
            yield from arguments
        case Reduce(argument=argument) | Dither(argument=argument):
            yield argument
        case Decode(code=code):
            yield code
