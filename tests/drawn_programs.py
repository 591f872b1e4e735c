"""Programs drawn from the IR, whatever the checker would say of their sense, and how two runs are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import codecs_by_hand as codecs
import numpy as np
from hypothesis import strategies as st
from path_runner import PathRunner

from relaxc.program.codec import EXACT
from relaxc.program.evaluate import round_to
from relaxc.program.interpret import Interpreter
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
    Own,
    Phase,
    Program,
    Read,
    Reduce,
    State,
    Statement,
    Step,
)  # fmt: skip
from relaxc.program.passes.paths import to_paths
from relaxc.topology.topology import Topology
from relaxc.wire.parameters import Parameter

MINMAX, STOCHASTIC = codecs.minmax(4, 8), codecs.minmax(4, 8, stochastic=True)
ONEBIT, MODULO = codecs.onebit(16), codecs.guarded(4, 0.25, 16)
RING, PAIRS, TURNING = Topology("ring"), Topology("random_pairs"), Topology("one_peer_exponential")
HEARD, TREE = Topology("exponential"), Topology("chain")
STATES = (
    State("a", Constant(0.0), "tensor"),
    State("b", Read("weight"), "tensor"),
    State("n", Constant(1.0), "number"),
    State("c", Reduce("norm", Read("weight")), "cell"),
)
SHAPES = {"a": "tensor", "b": "tensor", "n": "number", "c": "cell"}
NUMBERS = ("t", "workers", "rank", "lr")


class Writer:
    """Draws one body. Names carry their shapes; guards read numbers that are the same on all workers only."""

    def __init__(self, draw: Any) -> None:
        self.draw = draw
        self.places = self.blocks = self.lets = 0
        self.exchanges = 0

    def pick(self, *options: Any) -> Any:
        return self.draw(st.sampled_from(options))

    def place(self) -> int:
        self.places += 2
        return self.places

    def block(self) -> int:
        self.blocks += 1
        return self.blocks

    # --- expressions

    def number(self, names: dict[str, str], depth: int = 2) -> Expression:
        known = [n for n, shape in names.items() if shape == "number"]
        kind = self.pick("constant", "name", "apply") if depth else self.pick("constant", "name")
        if kind == "constant":
            return Constant(self.pick(0.0, 0.5, 1.0, -1.25, 3.0))
        if kind == "name":
            name: Expression = self.pick(*map(Read, [*NUMBERS, *known]), Optimizer("momentum", tensor=False), Own(RING))
            return name
        arguments = (self.number(names, depth - 1), self.number(names, depth - 1))
        return Apply(self.pick("+", "-", "*", "/", "min", "max"), arguments)

    def tensor(self, names: dict[str, str], depth: int = 3) -> Expression:
        leaves = [n for n, shape in names.items() if shape in ("tensor", "cell")]
        codes = [n for n, shape in names.items() if shape == "code"]
        kind = self.pick("name", "name", "apply", "apply", "exchange", "number", "norm", "decode") if depth else "name"
        if kind == "exchange" and self.exchanges < 4:
            return self.exchange(names, depth - 1)
        if kind == "decode" and codes:
            return Decode(Read(self.pick(*codes)))
        if kind == "norm" and self.pick(True, False):
            return Reduce("norm", self.tensor(names, depth - 2 if depth > 2 else 0))
        if kind in ("apply", "number"):
            second = self.number(names, 1) if kind == "number" else self.tensor(names, depth - 1)
            return Apply(self.pick("+", "-", "*", "-", "+"), (self.tensor(names, depth - 1), second))
        state = Optimizer("momentum_buffer", tensor=True)
        leaf: Expression = self.pick(Read("weight"), Read("grad"), state, *map(Read, leaves))
        return leaf

    def exchange(self, names: dict[str, str], depth: int) -> Exchange:
        self.exchanges += 1
        if self.pick(*range(6)) == 0:
            return Exchange("relay", self.tensor(names, max(depth, 0)), EXACT, "none", "", TREE, self.place())
        codes = [n for n, shape in names.items() if shape == "code"]
        kind = self.pick("mean", "sum", "mix", "push")
        topology = self.pick(RING, PAIRS, TURNING, HEARD) if kind in ("mix", "push") else None
        route = "all" if topology is None else ""
        if codes and self.pick(True, False, True):
            value: Expression = Read(self.pick(*codes))
            return Exchange(kind, value, None, "none", route, topology, self.place())
        used = self.pick(None, None, MINMAX, ONEBIT, *([MODULO] if topology is not None else []))
        feedback = "none" if used is None else self.pick("none", "worker", "both")
        if topology is not None and feedback == "both":
            feedback = "worker"
        if used is not None and topology is None:
            route = self.pick("all", "ring")
        return Exchange(kind, self.tensor(names, max(depth, 0)), used, feedback, route, topology, self.place())

    # --- statements

    def statements(self, names: dict[str, str], depth: int, count: int) -> tuple[Statement, ...]:
        made: list[Statement] = []
        for _ in range(count):
            made += self.statement(names, depth)
        return tuple(made)

    def statement(self, names: dict[str, str], depth: int) -> list[Statement]:
        kind = self.pick("let", "let", "assign", "assign", "assign", "number", "code", "block", "block", "cell")
        match kind:
            case "let":
                self.lets += 1
                value = self.tensor(names)
                name = f"x{self.lets}"
                names[name] = "tensor"
                return [Let(name, value), *self.used(name)]
            case "code":
                return self.code(names)
            case "number":
                if self.pick(True, False):
                    self.lets += 1
                    value = self.number(names)
                    names[f"k{self.lets}"] = "number"
                    return [Let(f"k{self.lets}", value)]
                return [Assign("n", self.pick(Apply("+", (Read("n"), Constant(1.0))), Read("t"), Constant(2.0)))]
            case "cell" if self.exchanges < 5 and self.pick(True, False):
                return self.sent_cell(names)
            case "cell":
                return [Assign("c", Apply("+", (Read("c"), Reduce("norm", self.tensor(names, 1)))))]
            case "block" if depth:
                return self.nested(names, depth - 1)
        return [Assign(self.pick("weight", "a", "b"), self.tensor(names))]

    def sent_cell(self, names: dict[str, str]) -> list[Statement]:
        """A number or cell is exchanged, and what arrives is assigned, or read by what stands below."""
        self.exchanges += 1
        kind = self.pick("push", "mix", "sum", "mean", "relay")
        value = self.pick(Read("c"), self.number(names, 1), Apply("+", (Read("c"), Own(RING))))
        near = kind in ("push", "mix", "relay")
        topology = TREE if kind == "relay" else self.pick(RING, TURNING, HEARD) if near else None
        codec = EXACT if kind == "relay" else None
        sent = Exchange(kind, value, codec, "none", "" if near else "all", topology, self.place())
        if self.pick(True, False):
            return [Assign("c", Apply("*", (sent, Constant(0.5))))]
        self.lets += 1
        names[f"y{self.lets}"] = "cell"
        return [Let(f"y{self.lets}", sent)]

    def used(self, name: str) -> list[Statement]:
        return [Assign("a", Read(name))] if self.pick(True, False, False) else []

    def code(self, names: dict[str, str]) -> list[Statement]:
        """A code, and an exchange of it in the same block: what is decoded has to be sent."""
        self.lets += 1
        name, value = f"q{self.lets}", self.tensor({n: s for n, s in names.items() if s != "code"}, 2)
        kind = self.pick("mix", "mean", "sum")
        topology = self.pick(RING, PAIRS) if kind == "mix" else None
        route = "" if kind == "mix" else "all"
        sent = Exchange(kind, Read(name), None, "none", route, topology, self.place())
        made: list[Statement] = [Let(name, Encode(value, self.pick(MINMAX, MODULO, STOCHASTIC), self.place()))]
        if self.pick(True, False):
            made.append(Assign("b", Apply("+", (Read("b"), Decode(Read(name))))))
        self.lets += 1
        names[f"x{self.lets}"] = "tensor"
        return [*made, Let(f"x{self.lets}", sent)]

    def nested(self, names: dict[str, str], depth: int) -> list[Statement]:
        kind, inner, number = self.pick("every", "phase", "after", "after"), dict(names), self.block()
        body = self.statements(inner, depth, self.pick(1, 2, 3))
        match kind:
            case "every":
                how = self.pick("number", "staggered", "geometric")
                period = self.pick(Constant(2.0), Constant(3.0), Read("n"), Apply("+", (Read("t"), Constant(1.0))))
                return [Every(number, how, period, body)]
            case "phase":
                first, last = self.pick((0, 3), (2, 6), (3, None))
                return [Phase(number, "p", first, last, body)]
        return [After(number, self.pick(1, 2, 3), body)]

    # --- gradients

    def opening(self, names: dict[str, str]) -> tuple[Statement, ...]:
        """What is done to gradients first, in all the ways there are."""
        mean = Exchange("mean", Read("grad"), self.pick(None, MINMAX), "none", "all", None, self.place())
        late = After(self.block(), self.pick(1, 2), (Assign("grad", Read("g")),))
        halved = Let("g", Apply("*", (mean, Constant(0.5))))
        match self.pick("nothing", "nothing", "native", "native late", "late", "now", "phase", "every"):
            case "native":
                return (Assign("grad", mean),)
            case "native late":
                return Let("g", mean), late
            case "late":
                return halved, late
            case "now":
                return (*self.statements(names, 0, 1), Assign("grad", self.tensor(names)))
            case "phase":
                return (Phase(self.block(), "p", 1, 4, (Assign("grad", mean), *self.statements(dict(names), 0, 1))),)
            case "every":
                next_one = After(self.block(), 1, (Assign("grad", Read("g")),))
                return (Every(self.block(), "number", Constant(3.0), (halved, next_one)),)
        return ()


def bodies() -> st.SearchStrategy[Body]:
    @st.composite
    def body(draw: Any) -> Body:
        writer, names = Writer(draw), dict(SHAPES)
        made = writer.opening(names)
        before = writer.statements(names, 2, writer.pick(0, 1, 2))
        step = (Step(),) if writer.pick(True, True, False) else ()
        behind = writer.statements(names, 2, writer.pick(1, 2, 3))
        return Body(None, STATES, (*made, *before, *step, *behind))

    return body()


class Descent:
    """A user's optimiser whose own state changes as it steps."""

    def __init__(self) -> None:
        self.steps: dict[tuple[int, int], int] = {}

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        key = worker, parameter.number
        self.steps[key] = self.steps.get(key, 0) + 1
        with np.errstate(all="ignore"):
            return weight - weight.dtype.type(0.125) * grad

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return 0.125 if name == "lr" else 0.75

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        real = np.float64 if parameter.dtype == "f64" else np.float32
        return np.full(parameter.elements, 0.5 * self.steps.get((worker, parameter.number), 0), real)


def check_agreement(
    program: Program,
    workers: int,
    seed: int,
    dtype: str = "f32",
    sizes: Sequence[int] = (9, 0, 33),
    iterations: int = 12,
) -> PathRunner:
    """Interpreter and PathRunner have the same bits in all weights, states and residuals after every iteration."""
    parameters = [Parameter(n, f"p{n}", (size,), dtype) for n, size in enumerate(sizes)]
    draw = np.random.default_rng(seed)
    start = [drawn(draw, p) for p in parameters]
    before = Interpreter(program, parameters, workers, seed, start, Descent())
    after = PathRunner(to_paths(program), parameters, workers, seed, start, Descent())
    for _ in range(iterations):
        grads = [[None if draw.random() < 0.1 else drawn(draw, p) for p in parameters] for _ in range(workers)]
        if grads[0][0] is not None and draw.random() < 0.1:
            grads[0][0][0] = np.nan
        before.iterate(grads)
        after.iterate(grads)
        for worker in range(workers):
            for p in parameters:
                assert_same(before.weights[worker][p.number], after.weights[worker][p.number])
                expected, found = before.states(worker, p.number), after.states(worker, p.number)
                assert expected.keys() == found.keys()
                for name in expected:
                    assert_same(expected[name], found[name])
    for key, residuals in before.residuals.items():
        if key in after.residuals:
            for one, other in zip(residuals.worker, after.residuals[key].worker, strict=True):
                assert_same(one, other)
            assert_same(residuals.owner, after.residuals[key].owner)
        else:
            assert not residuals.owner.any() and not any(r.any() for r in residuals.worker)
    return after


def assert_same(expected: Any, found: Any) -> None:
    """The same bits, one NaN like another."""
    expected, found = np.asarray(expected), np.asarray(found)
    assert expected.shape == found.shape and expected.dtype == found.dtype
    canonical = [np.where(np.isnan(x), x.dtype.type(np.nan), x) for x in (expected, found)]
    assert canonical[0].tobytes() == canonical[1].tobytes(), f"{expected} is not {found}"


def drawn(draw: np.random.Generator, parameter: Parameter) -> Any:
    real = np.float64 if parameter.dtype == "f64" else np.float32
    values = draw.standard_normal(parameter.elements) * 10.0 ** draw.integers(-2, 2)
    return round_to(values.astype(real), parameter.dtype)
