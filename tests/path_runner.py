"""Carries out paths in numpy for N workers, one parameter after the other: what the runtime does, without messages.

The program's interpreter must agree with it to the bit. What a pass must not rely on is made useless: a gradient in the
tail is NaN, a slot is taken twice only after it was waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from relaxc.program.flights import Arrivals, Flight, Peers, Post, Prompt, met_neighbours
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
PATIENCE = 1000
"""Rounds of all workers in which nobody ends, before they are taken to be stuck."""


@dataclass
class _Store:
    """By worker: tensors and cells by name, numbers by name. `slots` and `kept` are by (number, copy)."""

    tensors: list[dict[str, Array]]
    numbers: list[dict[str, float]]
    counts: list[Counts]
    slots: dict[tuple[int, int], list[Array]] = field(default_factory=dict)
    kept: dict[tuple[int, int], dict[int, Array]] = field(default_factory=dict)
    under_way: dict[tuple[int, int], list[Array | None]] = field(default_factory=dict)
    meetings: dict[tuple[int, int], dict[int, Array | Code]] = field(default_factory=dict)
    """What has been put into an exchange that not all have started."""


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
        arrivals: Arrivals | None = None,
    ) -> None:
        self.paths, self.parameters, self.workers, self.seed = paths, parameters, workers, seed
        self.optimizer = optimizer
        self.arrivals: Arrivals = arrivals or Prompt()
        self.post = Post(workers, seed)
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
        results = [_iteration(self, p, [g[p.number] for g in made]) for p in self.parameters]
        self.iteration += 1
        return [[result[w] for result in results] for w in range(self.workers)]

    def _body(self, parameter: Parameter) -> PathBody:
        number = self.bodies[parameter.number]
        return _NO_BODY if number is None else self.paths.bodies[number]

    def _started(self, parameter: Parameter, weight: Array | None) -> _Store:
        real, body = real_type(parameter), self._body(parameter)
        flat = np.zeros(parameter.elements, real) if weight is None else np.asarray(weight).ravel().astype(real)
        store = _Store(
            [{"weight": round_to(flat, parameter.dtype)} for _ in range(self.workers)],
            [],
            [Counts() for _ in range(self.workers)],
        )
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


def _iteration(owner: PathRunner, parameter: Parameter, grads: Sequence[Array | None]) -> list[Array | None]:
    """All workers side by side, each as far as it gets without waiting."""
    runs = [_Run(owner, parameter, grad, w) for w, grad in enumerate(grads)]
    for run in runs:
        for entry in run.turn.launched.values():
            if entry.flight is not None:
                owner.arrivals.launched(entry.flight)
    going = {run.w: run.run() for run in runs}
    stuck = 0
    while going:
        for w, steps in list(going.items()):
            try:
                next(steps)
            except StopIteration:
                del going[w]
                stuck = 0
        stuck += 1
        assert stuck < PATIENCE, "workers wait for one another"
    return [run.gradient for run in runs]


class _Run:
    """One iteration of one parameter on one worker."""

    def __init__(self, owner: PathRunner, parameter: Parameter, grad: Array | None, w: int) -> None:
        self.owner, self.parameter, self.body, self.w = owner, parameter, owner._body(parameter), w
        self.store = owner._stores[parameter.number]
        self.real = real_type(parameter)
        self.present = grad is not None
        self.store.tensors[w]["grad"] = np.zeros(parameter.elements, self.real) if grad is None else grad
        self.turn = Control(self).turn()
        self.put_in: dict[int, Array | Code] = {}
        self.arrived: dict[int, Array] = {}
        self.gradient: Array | None = None

    def run(self) -> Iterator[None]:
        if not self.body.paths:
            self.step()
            self.gradient = self.grad()
            return
        path = next(p for p in self.body.paths if p.guards == tuple(self.turn.truths))
        self.numbers = _Numbers(self, path)
        for stage in ("begin", "backward", "before"):
            yield from self.stage(path, stage)
        self.gradient = self.grad()
        if path.steps:
            self.step()
        yield from self.stage(path, "after")
        self.store.tensors[self.w]["grad"] = np.full(self.parameter.elements, NOTHING, self.real)
        yield from self.stage(path, "tail")
        self.commit(path)

    def grad(self) -> Array | None:
        return self.store.tensors[self.w]["grad"] if self.present else None

    def step(self) -> None:
        rule = self.owner.optimizer
        if rule is not None and self.present:
            memory = self.store.tensors[self.w]
            new = rule.step(self.w, self.parameter, memory["weight"], memory["grad"])
            memory["weight"] = round_to(np.asarray(new, self.real), self.parameter.dtype)

    def commit(self, path: Path) -> None:
        last = {state: self.numbers[name] for state, name in path.states}
        for block, name, value in path.captures:
            self.turn.launched[block].numbers[name] = self.numbers.of(value)
        self.store.numbers[self.w].update(last)

    # --- asynchronous launches

    def flight(self, block: int, round: int) -> Flight:
        exchanges = [t.exchange for t in self.body.transfers if t.asynchronous and t.after == block]
        near = met_neighbours(exchanges, self.owner.workers, self.w)
        number = self.owner.bodies[self.parameter.number] or 0
        return Flight(self.w, number, self.parameter.number, block, round, self.owner.iteration, near)

    def peers(self, flight: Flight) -> Peers | None:
        return self.owner.arrivals.peers(flight) if flight.neighbours else None

    def is_there(self, flight: Flight) -> bool:
        peers = self.peers(flight)
        return all(
            self.owner.post.is_there(_summed(t), self.parameter.number, self.w, flight.round, peers)
            for t in self.body.transfers
            if t.asynchronous and t.after == flight.block
        )

    # --- operations

    def stage(self, path: Path, name: str) -> Iterator[None]:
        for operation in path.stage(name):
            match operation.kind:
                case "compute":
                    self.compute(self.body.fragments[operation.number])
                case "start":
                    self.start(operation.number, self.body.transfers[operation.number])
                case "finish" if operation.late and self.body.transfers[operation.number].asynchronous:
                    yield from self.land(operation.number, self.body.transfers[operation.number])
                case "finish":
                    yield from self.finish(operation, self.body.transfers[operation.number])

    def compute(self, fragment: Fragment) -> None:
        evaluator = self.evaluator(fragment)
        if fragment.sends is not None:
            assert fragment.value is not None
            self.encode(fragment, evaluator)
        stores = evaluator.stores(fragment)
        if fragment.near is not None:
            self.check_near(fragment, evaluator)
        for target, value in stores:
            self.put(target, np.asarray(value, self.real))

    def encode(self, fragment: Fragment, evaluator: _Evaluator) -> None:
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
            moment = self.moment(transfer)
            keys = encoding_keys(self.owner.seed, moment, exchange.place, self.w, self.parameter)
            shared = shared_keys(self.owner.seed, moment, self.parameter)
            states = self.residuals(transfer).states[self.w] if exchange.codec.states else {}
            message = encode(exchange.codec, value, keys, states=states, shared=shared)
            value = Code(exchange.codec, value, message, states, shared=shared)
            evaluator.tensors = {**tensors, "coded": value.decoded()}
        self.put_in[fragment.sends] = value

    def moment(self, transfer: Transfer) -> int:
        """What draws are of."""
        return self.turn.rounds[transfer.block] if transfer.asynchronous else self.owner.iteration

    def check_near(self, fragment: Fragment, evaluator: _Evaluator) -> None:
        assert fragment.near is not None and fragment.receives is not None
        put = self.put_in[fragment.receives]
        put = put.put if isinstance(put, Code) else put
        assert evaluator.full(evaluator.value(fragment.near)).tobytes() == put.tobytes(), "near is not what was sent"

    def start(self, number: int, transfer: Transfer) -> None:
        """The exchange by its definition; nobody may see its result before it is waited for."""
        key = (number, self.copy(transfer.block, transfer.copies))
        value = self.store.slots[key][self.w] if transfer.leaves == "slot" else self.put_in[number]
        if transfer.asynchronous:
            self.owner.post.put(self.occurrence(transfer, [value] * self.owner.workers, None), self.w)
            return
        assert key not in self.store.under_way, f"slot {key} is taken while it is under way"
        meeting = self.store.meetings.setdefault(key, {})
        meeting[self.w] = value
        if len(meeting) < self.owner.workers:
            return
        del self.store.meetings[key]
        values = [meeting[w] for w in range(self.owner.workers)]
        rows = None
        if transfer.exchange.topology is not None:
            round, seed = self.turn.rounds[transfer.block], self.owner.seed
            everyone = range(self.owner.workers)
            rows = [weights(transfer.exchange.topology, self.owner.workers, round, seed, w) for w in everyone]
        self.store.under_way[key] = list(run_exchange(self.occurrence(transfer, values, rows)))

    def occurrence(self, transfer: Transfer, values: Sequence[Array | Code], rows: Any) -> Occurrence:
        parameter = self.sent_of(transfer)
        held = self.owner.held.setdefault(
            (transfer.exchange.place, parameter.number), [{} for _ in range(self.owner.workers)]
        )
        return Occurrence(
            _summed(transfer), values, self.residuals(transfer), parameter, self.owner.seed, self.moment(transfer),
            rows, held=held,
        )  # fmt: skip

    def sent_of(self, transfer: Transfer) -> Parameter:
        return self.parameter if transfer.shape == "tensor" else cell_of(self.parameter)

    def residuals(self, transfer: Transfer) -> Residuals:
        parameter = self.sent_of(transfer)
        key = (transfer.exchange.place, parameter.number)
        return self.owner.residuals.setdefault(key, Residuals.zeros(parameter, self.owner.workers))

    def finish(self, operation: Operation, transfer: Transfer) -> Iterator[None]:
        block = transfer.after if operation.late else transfer.block
        key = (operation.number, self.copy(block, transfer.copies))
        while key not in self.store.under_way:
            yield
        results = self.store.under_way[key]
        result, results[self.w] = results[self.w], None
        assert result is not None, "a result is taken twice"
        if all(r is None for r in results):
            del self.store.under_way[key]
        if transfer.lands == "slot":
            self.store.slots.setdefault(key, [result] * self.owner.workers)[self.w] = result
        else:
            self.arrived[operation.number] = result

    def land(self, number: int, transfer: Transfer) -> Iterator[None]:
        flight = self.turn.landing[transfer.after].flight
        assert flight is not None and transfer.lands == "slot"
        exchange, parameter = _summed(transfer), self.parameter.number
        while not self.owner.post.is_there(exchange, parameter, self.w, flight.round, self.peers(flight)):
            yield
        peers, residuals = self.peers(flight), self.residuals(transfer)
        result = self.owner.post.arrived(_summed(transfer), self.parameter, flight, peers, residuals)
        self.store.slots.setdefault((number, 0), [result] * self.owner.workers)[self.w] = result

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

    def put(self, target: str, value: Array) -> None:
        w = self.w
        memory = self.store.tensors[w]
        full = np.broadcast_to(value, (self.parameter.elements,)).copy()
        if target in ("weight", "grad"):
            memory[target] = round_to(full, self.parameter.dtype)
            self.present = self.present or target == "grad"
        elif target.startswith("slot."):
            cell = self.body.transfers[int(target[5:])].shape == "cell"
            held = value.reshape(1) if cell else full  # what is exchanged has elements, if only one
            self.store.slots.setdefault(self.key(target, False), [held] * self.owner.workers)[w] = held
        elif target.startswith("kept."):
            shape = self.body.kept[int(target[5:])].shape
            self.store.kept.setdefault(self.key(target, False), {})[w] = value if shape == "cell" else full
        else:
            memory[target] = settled(memory[target], value)

    def evaluator(self, fragment: Fragment) -> _Evaluator:
        w = self.w
        tensors, numbers = dict(self.store.tensors[w]), {}
        lets = {let.name for let in fragment.lets}
        for name in _names(fragment) - lets - {"coded"}:
            if name.startswith(("slot.", "kept.")):
                memory: Mapping[Any, Any] = self.store.slots if name.startswith("slot.") else self.store.kept
                held = memory[self.key(name, name in fragment.late)][w]
                cell = name.startswith("slot.") and self.body.transfers[int(name[5:])].shape == "cell"
                tensors[name] = held.reshape(()) if cell else held
            elif name == "own_coded":
                assert fragment.receives is not None
                sent = self.put_in[fragment.receives]
                assert isinstance(sent, Code)
                tensors[name] = sent.decoded()
            elif name == "arrived":
                assert fragment.receives is not None
                tensors[name] = self.arrived[fragment.receives]
            elif name.startswith("optimizer."):
                assert self.owner.optimizer is not None
                tensors[name] = self.owner.optimizer.state(w, self.parameter, name.removeprefix("optimizer."))
            elif name not in tensors:
                numbers[name] = self.numbers[name]
        return _Evaluator(self.real, numbers, tensors, dtype=self.parameter.dtype, size=self.parameter.elements)


def _summed(transfer: Transfer) -> Exchange:
    """An all-reduce brings the sum; a fragment divides it."""
    exchange = transfer.exchange
    reduced = exchange.kind == "mean" and exchange.codec is None and not exchange.rank
    return replace(exchange, kind="sum") if reduced else exchange


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

    def __init__(self, run: _Run, path: Path) -> None:
        super().__init__(run.store.numbers[run.w], t=float(run.owner.iteration))
        self.run, self.worker, self.made = run, run.w, dict(path.numbers)
        for entry in run.turn.landing.values():
            self.update(entry.numbers)

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
