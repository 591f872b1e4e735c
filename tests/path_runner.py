"""Carries out paths in numpy for N workers, one parameter after the other: what the runtime does, without messages.

The program's interpreter must agree with it to the bit. What a pass must not rely on is made useless: a gradient in the
tail is NaN, a slot is taken twice only after it was waited for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from path_control import Control, Counts

from relaxc.program.arithmetic import Evaluator, host_number, name_of, settled
from relaxc.program.evaluate import encode, round_to
from relaxc.program.exchange import (
    Code,
    Occurrence,
    Residuals,
    cell_of,
    encoding_keys,
    real_type,
    run_exchange,
    shared_keys,
)
from relaxc.program.functions import Array
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import After, Apply, Assign, Body, Exchange, Expression, Let, Optimizer, Program, Read, within
from relaxc.program.paths import (
    FINITE,
    STORED,
    Fragment,
    Gradient,
    Operation,
    Path,
    PathBody,
    Paths,
    Transfer,
    expressions,
)  # fmt: skip
from relaxc.program.relays import Held
from relaxc.program.store import Rule
from relaxc.topology.weights import own_weight, weights
from relaxc.wire.parameters import Parameter
from relaxc.wire.selection import assign

NOTHING = np.nan


@dataclass
class _Store:
    """By worker: tensors and cells by name, numbers by name. `slots` and `kept` are by (number, copy)."""

    tensors: list[dict[str, Array]]
    numbers: list[dict[str, float]]
    counts: Counts = field(default_factory=Counts)
    slots: dict[tuple[int, int], list[Array]] = field(default_factory=dict)
    kept: dict[tuple[int, int], dict[int, Array]] = field(default_factory=dict)
    under_way: dict[tuple[int, int], list[Array]] = field(default_factory=dict)


class PathRunner:
    """Runs `paths` as Interpreter runs a program; `residuals` are by (place, parameter)."""

    def __init__(
        self,
        paths: Paths,
        parameters: Sequence[Parameter],
        workers: int,
        seed: int = 0,
        weights: Sequence[Array] | None = None,
        optimizer: Rule | None = None,
    ) -> None:
        self.paths, self.parameters, self.workers, self.seed = paths, parameters, workers, seed
        self.optimizer = optimizer
        self.iteration = 0
        self.bodies = assign([body.selector for body in paths.bodies], parameters)
        native = Program(tuple(Body(b.selector, (), _native(b.gradient)) for b in paths.bodies))
        self.held: dict[tuple[int, int], Held] = {}
        self._native = Interpreter(native, parameters, workers, seed)
        self.residuals: dict[tuple[int, int], Residuals] = self._native.residuals
        self._stores = [self._started(p, None if weights is None else weights[p.number]) for p in parameters]

    @property
    def weights(self) -> list[list[Array]]:
        """By worker and parameter."""
        return [[store.tensors[w]["weight"] for store in self._stores] for w in range(self.workers)]

    def states(self, worker: int, parameter: int) -> dict[str, float | Array]:
        """A worker's states of a parameter, by name."""
        store, body = self._stores[parameter], self._body(self.parameters[parameter])
        known: dict[str, float | Array] = {**store.tensors[worker], **store.numbers[worker]}
        return {state.name: known[state.name] for state in body.states}

    def iterate(self, grads: Sequence[Sequence[Array | None]]) -> list[list[Array | None]]:
        """One iteration: `grads[worker][parameter]` as backward made them, None where a worker has none.

        Return what `.grad` is when the user's optimiser steps, in the same shape.
        """
        made = self._native.iterate(grads)
        results = [_Run(self, p, [g[p.number] for g in made]).run() for p in self.parameters]
        self.iteration += 1
        return [[result[w] for result in results] for w in range(self.workers)]

    def _body(self, parameter: Parameter) -> PathBody:
        number = self.bodies[parameter.number]
        return _NO_BODY if number is None else self.paths.bodies[number]

    def _started(self, parameter: Parameter, weight: Array | None) -> _Store:
        real, body = real_type(parameter), self._body(parameter)
        flat = np.zeros(parameter.elements, real) if weight is None else np.asarray(weight).ravel().astype(real)
        store = _Store([{"weight": round_to(flat, parameter.dtype)} for _ in range(self.workers)], [])
        for w in range(self.workers):
            numbers = {"workers": float(self.workers), "rank": float(w), "t": 0.0}
            for state in body.states:
                if state.shape == "number":
                    numbers[state.name] = host_number(state.initial, numbers)
                    continue
                shape = () if state.shape == "cell" else (parameter.elements,)
                store.tensors[w][state.name] = np.zeros(shape, real)
            store.numbers.append(numbers)
            for fragment in (body.fragments[n] for n in body.start):
                evaluator = _Evaluator(real, numbers, dict(store.tensors[w]), dtype=parameter.dtype, size=flat.size)
                for name, value in evaluator.stores(fragment):
                    old = store.tensors[w][name]
                    store.tensors[w][name] = np.broadcast_to(np.asarray(value, real), old.shape).copy()
        return store


_NO_BODY = PathBody(None, None, (), (), (), (), (), (), ())


def _native(gradient: Gradient | None) -> tuple[Any, ...]:
    if gradient is None:
        return ()
    if gradient.delay:
        return Let("mean", gradient.exchange), After(1, gradient.delay, (Assign("grad", Read("mean")),))
    return (Assign("grad", gradient.exchange),)


@dataclass
class _Evaluator(Evaluator):
    dtype: str = "f32"
    size: int = 0

    def array(self, e: Expression) -> Array:
        match e:
            case Apply(function=function, arguments=(value,)) if function == STORED:
                return round_to(self.full(self.array(value)), self.dtype)
            case Apply(function=function, arguments=(new, old)) if function == FINITE:
                return settled(self.array(old), self.array(new))
        return super().array(e)

    def full(self, value: float | Array) -> Array:
        return np.broadcast_to(np.asarray(value, self.real), (self.size,)).copy()

    def bind(self, fragment: Fragment) -> None:
        for let in fragment.lets:
            self.tensors = {**self.tensors, let.name: np.asarray(self.value(let.value), self.real)}

    def stores(self, fragment: Fragment) -> list[tuple[str, float | Array]]:
        self.bind(fragment)
        return [(store.target, self.value(store.value)) for store in fragment.stores]


class _Run:
    """One iteration of one parameter."""

    def __init__(self, owner: PathRunner, parameter: Parameter, grads: Sequence[Array | None]) -> None:
        self.owner, self.parameter, self.body = owner, parameter, owner._body(parameter)
        self.store = owner._stores[parameter.number]
        self.real = real_type(parameter)
        self.present = [g is not None for g in grads]
        for w, grad in enumerate(grads):
            self.store.tensors[w]["grad"] = np.zeros(parameter.elements, self.real) if grad is None else grad
        self.turn = Control(self).turn()
        self.sent: dict[int, list[Array | Code]] = {}
        self.arrived: dict[int, list[Array]] = {}

    @property
    def workers(self) -> range:
        return range(self.owner.workers)

    def run(self) -> list[Array | None]:
        if not self.body.paths:
            self.step()
            return self.gradients()
        path = next(p for p in self.body.paths if p.guards == tuple(self.turn.truths))
        self.numbers = [_Numbers(self, path, w) for w in self.workers]
        for stage in ("begin", "backward", "before"):
            self.stage(path, stage)
        gradients = self.gradients()
        if path.steps:
            self.step()
        self.stage(path, "after")
        for w in self.workers:
            self.store.tensors[w]["grad"] = np.full(self.parameter.elements, NOTHING, self.real)
        self.stage(path, "tail")
        self.commit(path)
        return gradients

    def gradients(self) -> list[Array | None]:
        return [self.store.tensors[w]["grad"] if self.present[w] else None for w in self.workers]

    def step(self) -> None:
        rule = self.owner.optimizer
        for w in self.workers if rule is not None else ():
            if self.present[w]:
                memory = self.store.tensors[w]
                new = rule.step(w, self.parameter, memory["weight"], memory["grad"])  # type: ignore[union-attr]
                memory["weight"] = round_to(np.asarray(new, self.real), self.parameter.dtype)

    def commit(self, path: Path) -> None:
        for w in self.workers:
            last = {state: self.numbers[w][name] for state, name in path.states}
            for block, name, value in path.captures:
                self.turn.launched[block].numbers[w][name] = self.numbers[w].of(value)
            self.store.numbers[w].update(last)

    # --- operations

    def stage(self, path: Path, name: str) -> None:
        for operation in path.stage(name):
            match operation.kind:
                case "compute":
                    self.compute(self.body.fragments[operation.number])
                case "start":
                    self.start(operation.number, self.body.transfers[operation.number])
                case "finish":
                    self.finish(operation, self.body.transfers[operation.number])

    def compute(self, fragment: Fragment) -> None:
        for w in self.workers:
            evaluator = self.evaluator(fragment, w)
            if fragment.sends is not None:
                assert fragment.value is not None
                self.encode(fragment, evaluator, w)
            stores = evaluator.stores(fragment)
            if fragment.near is not None:
                self.check_near(fragment, evaluator, w)
            for target, value in stores:
                self.put(target, np.asarray(value, self.real), w)

    def encode(self, fragment: Fragment, evaluator: _Evaluator, w: int) -> None:
        """What is decoded of a code may be read by the fragment's lets; what is put in reads none of that."""
        assert fragment.sends is not None and fragment.value is not None
        transfer = self.body.transfers[fragment.sends]
        tensors = evaluator.tensors
        for let in fragment.lets:
            if "coded" not in _reads_through(fragment, let.value):
                evaluator.tensors = {**evaluator.tensors, let.name: np.asarray(evaluator.value(let.value), self.real)}
        value: Array | Code = evaluator.full(evaluator.value(fragment.value))
        evaluator.tensors = tensors
        if transfer.coded:
            exchange = transfer.exchange
            assert exchange.codec is not None and not isinstance(value, Code)
            keys = encoding_keys(self.owner.seed, self.owner.iteration, exchange.place, w, self.parameter)
            key = (exchange.place, self.parameter.number)
            made = Residuals.zeros(self.parameter, self.owner.workers)
            states = self.owner.residuals.setdefault(key, made).states[w] if exchange.codec.states else {}
            shared = shared_keys(self.owner.seed, self.owner.iteration, self.parameter)
            message = encode(exchange.codec, value, keys, states=states, shared=shared)
            value = Code(exchange.codec, value, message, states, shared=shared)
            evaluator.tensors = {**tensors, "coded": value.decoded()}
        self.sent.setdefault(fragment.sends, []).append(value)

    def check_near(self, fragment: Fragment, evaluator: _Evaluator, w: int) -> None:
        assert fragment.near is not None and fragment.receives is not None
        put = self.sent[fragment.receives][w]
        put = put.put if isinstance(put, Code) else put
        assert evaluator.full(evaluator.value(fragment.near)).tobytes() == put.tobytes(), "near is not what was sent"

    def start(self, number: int, transfer: Transfer) -> None:
        """The exchange by its definition; nobody may see its result before it is waited for."""
        key = (number, self.copy(transfer.block, transfer.copies))
        assert key not in self.store.under_way, f"slot {key} is taken while it is under way"
        exchange = transfer.exchange
        if exchange.kind == "mean" and exchange.codec is None and not exchange.rank:
            exchange = replace(exchange, kind="sum")
        values: Sequence[Array | Code] = self.store.slots[key] if transfer.leaves == "slot" else self.sent[number]
        parameter = self.parameter if transfer.shape == "tensor" else cell_of(self.parameter)
        rows = None
        if exchange.topology is not None:
            round, seed = self.turn.rounds[transfer.block], self.owner.seed
            rows = [weights(exchange.topology, self.owner.workers, round, seed, w) for w in self.workers]
        self.store.under_way[key] = run_exchange(self.occurrence(exchange, values, rows, parameter))

    def occurrence(
        self, exchange: Exchange, values: Sequence[Array | Code], rows: Any, parameter: Parameter
    ) -> Occurrence:
        key = (exchange.place, parameter.number)
        residuals = self.owner.residuals.setdefault(key, Residuals.zeros(parameter, self.owner.workers))
        held = self.owner.held.setdefault(key, [{} for _ in self.workers])
        return Occurrence(
            exchange, values, residuals, parameter, self.owner.seed, self.owner.iteration, rows, held=held
        )

    def finish(self, operation: Operation, transfer: Transfer) -> None:
        block = transfer.after if operation.late else transfer.block
        key = (operation.number, self.copy(block, transfer.copies))
        result = self.store.under_way.pop(key)
        if transfer.lands == "slot":
            self.store.slots[key] = result
        else:
            self.arrived[operation.number] = result

    # --- memory

    def copy(self, block: int, copies: int) -> int:
        return self.turn.rounds[block] % copies

    def key(self, name: str, late: bool) -> tuple[int, int]:
        """Which slot or kept value `name` means."""
        number = int(name[5:])
        if name.startswith("slot."):
            transfer = self.body.transfers[number]
            return number, self.copy(transfer.after if late else transfer.block, transfer.copies)
        kept = self.body.kept[number]
        if kept.after < 0:
            return number, 0
        return number, self.copy(kept.after if late else self.turn.outer[kept.after], kept.copies)

    def put(self, target: str, value: Array, w: int) -> None:
        memory = self.store.tensors[w]
        full = np.broadcast_to(value, (self.parameter.elements,)).copy()
        if target in ("weight", "grad"):
            memory[target] = round_to(full, self.parameter.dtype)
            self.present[w] = self.present[w] or target == "grad"
        elif target.startswith("slot."):
            cell = self.body.transfers[int(target[5:])].shape == "cell"
            held = value.reshape(1) if cell else full  # what is exchanged has elements, if only one
            self.store.slots.setdefault(self.key(target, False), [held] * self.owner.workers)[w] = held
        elif target.startswith("kept."):
            shape = self.body.kept[int(target[5:])].shape
            self.store.kept.setdefault(self.key(target, False), {})[w] = value if shape == "cell" else full
        else:
            memory[target] = settled(memory[target], value)

    def evaluator(self, fragment: Fragment, w: int) -> _Evaluator:
        tensors, numbers = dict(self.store.tensors[w]), {}
        lets = {let.name for let in fragment.lets}
        for name in _names(fragment) - lets - {"coded"}:
            if name.startswith(("slot.", "kept.")):
                memory: Mapping[Any, Any] = self.store.slots if name.startswith("slot.") else self.store.kept
                held = memory[self.key(name, name in fragment.late)][w]
                cell = name.startswith("slot.") and self.body.transfers[int(name[5:])].shape == "cell"
                tensors[name] = held.reshape(()) if cell else held
            elif name == "arrived":
                assert fragment.receives is not None
                tensors[name] = self.arrived[fragment.receives][w]
            elif name.startswith("optimizer."):
                assert self.owner.optimizer is not None
                tensors[name] = self.owner.optimizer.state(w, self.parameter, name.removeprefix("optimizer."))
            elif name not in tensors:
                numbers[name] = self.numbers[w][name]
        return _Evaluator(self.real, numbers, tensors, dtype=self.parameter.dtype, size=self.parameter.elements)


def _names(fragment: Fragment) -> set[str]:
    return {name_of(p) for e in expressions(fragment) for p in within(e) if isinstance(p, Read | Optimizer)}


def _reads_through(fragment: Fragment, e: Expression) -> set[str]:
    """What `e` reads, through the fragment's lets."""
    lets = {let.name: let.value for let in fragment.lets}
    found: set[str] = set()
    open_ = [p.name for p in within(e) if isinstance(p, Read)]
    while open_:
        name = open_.pop()
        found.add(name)
        if name in lets:
            open_ += [p.name for p in within(lets[name]) if isinstance(p, Read)]
    return found


class _Numbers(dict[str, float]):
    """The numbers of one worker, each evaluated when it is asked for."""

    def __init__(self, run: _Run, path: Path, worker: int) -> None:
        super().__init__(run.store.numbers[worker], t=float(run.owner.iteration))
        self.run, self.worker, self.made = run, worker, dict(path.numbers)
        for entry in run.turn.landing.values():
            self.update(entry.numbers[worker])

    def __missing__(self, name: str) -> float:
        if name in self.made:
            self[name] = self.of(self.made[name])
        elif name.startswith("own."):
            topology, block = self.run.body.owns[int(name.removeprefix("own."))]
            round, seed = self.run.turn.rounds[block], self.run.owner.seed
            self[name] = own_weight(topology, self.run.owner.workers, round, seed, self.worker)
        else:
            assert self.run.owner.optimizer is not None, f"{name} is the optimizer's"
            asked = name.removeprefix("optimizer.")
            self[name] = float(self.run.owner.optimizer.number(self.worker, self.run.parameter, asked))
        return self[name]

    def of(self, e: Expression) -> float:
        return host_number(e, self)
