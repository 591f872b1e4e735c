"""The interpreter for many workers at once: what each worker has is a row of one array.

It gives the same bits, which a test holds it to for every spec. Elementwise arithmetic, codecs and the common exchanges
are done for all rows at once (row_exchange.py); the rest goes worker by worker, as it means. For programs without
`after async`, whose workers are not in step, and tasks in which every parameter always has a gradient.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from relaxc.program.arithmetic import Evaluator, name_of, no_round, settled
from relaxc.program.evaluate import round_to
from relaxc.program.exchange import Code, Residuals, cell_of, encoding_keys, shared_keys
from relaxc.program.functions import Array, norm
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import (
    After,
    Encode,
    Exchange,
    Expression,
    Optimizer,
    Own,
    Program,
    Read,
    Reduce,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.paths import Gradient
from relaxc.program.store import Late, Rule, Scope, Store, Values, updated
from relaxc.simulate.codes import Codes, Rows, at_once, encode_all
from relaxc.simulate.row_exchange import RowExchange, by_rows
from relaxc.topology.kinds import located as located_topology
from relaxc.topology.kinds import rows as rows_of
from relaxc.topology.topology import Topology
from relaxc.topology.weights import own_weight
from relaxc.wire.parameters import Parameter

COMMON = ("t", "workers")


class RowRule(Rule, Protocol):
    """An optimiser that steps all workers at once, with the same settings for all."""

    def step_rows(self, parameter: Parameter, weights: Rows, grads: Rows) -> Rows:
        """The new weights, from copies of the old ones."""


def in_step(program: Program) -> bool:
    """Whether all workers run every block in the same iteration."""
    everything = (s for body in program.bodies for s in flattened(body.statements))
    return not any(isinstance(s, After) and s.asynchronous for s in everything)


class RowEvaluator(Evaluator):
    """Tensors have the shape (workers, elements), cells (workers, 1)."""

    def array(self, e: Expression) -> Array:
        if isinstance(e, Reduce) and e.function == "norm":
            return self.typed(norm(np.atleast_2d(self.array(e.argument))))
        return super().array(e)


class Together(Interpreter):
    """Of `workers` workers, all starting with `weights`."""

    optimizer: RowRule | None

    def __init__(
        self, program: Program, parameters: Sequence[Parameter], workers: int, seed: int = 0,
        weights: Sequence[Array] | None = None, optimizer: RowRule | None = None, inner: int = 1,
    ) -> None:  # fmt: skip
        if not in_step(program):
            raise ValueError("workers at their own pace are not together")
        super().__init__(program, parameters, workers, seed, weights, optimizer, inner=inner)

    def rows(self, parameter: int) -> Rows:
        """The weights of a parameter, a row for each worker."""
        return np.asarray(self._stores[parameter].weight)

    def advance(self, grads: Sequence[Rows]) -> None:
        """One iteration: `grads[parameter]` as backward made them, a row for each worker."""
        for parameter in self.parameters:
            self._parameter(parameter, grads[parameter.number])  # type: ignore[arg-type]
        self.iteration += 1

    def _started(self, parameter: Parameter, weight: Array | None) -> Store:
        store = super()._started(parameter, weight)
        store.weight = np.stack(store.weight)
        for name, values in store.states.items():
            if not isinstance(values[0], float):
                store.states[name] = np.stack([np.atleast_1d(value) for value in values])
        return store

    def _scope(self, parameter: Parameter, body: Any, store: Store, grads: Any) -> Scope:
        scope = super()._scope(parameter, body, store, [])
        made = isinstance(grads, np.ndarray)
        shape = self.workers, parameter.elements
        rows = grads.astype(scope.real) if made else np.zeros(shape, scope.real)
        scope.present.extend([made] * self.workers)
        return Scope(parameter, body, store, rows, scope.present, {}, self.iteration, self.everyone)

    # --- the gradient exchange that runs during backward

    def _native(self, gradient: Gradient, scope: Scope) -> None:
        mean = self._exchanged(gradient.exchange, np.array(scope.grad), scope)
        queue = scope.store.queues.setdefault(-1, deque())
        queue.append(Late(self.iteration + gradient.delay, {"grad": mean}, scope.round, tuple(scope.present)))
        landed = queue.popleft() if queue[0].due <= self.iteration else None
        scope.present[:] = [landed is not None] * self.workers
        scope.grad[:] = 0 if landed is None else self._stored(landed.lets["grad"], scope)

    # --- statements

    def _assign(self, name: str, values: Values, scope: Scope) -> None:
        states = scope.store.states
        if name == "weight":
            scope.store.weight = self._stored(values, scope)
        elif name == "grad":
            scope.grad[:] = self._stored(values, scope)
            scope.present[:] = [True] * self.workers
        elif isinstance(states[name], list):
            states[name] = [updated(old, new) for old, new in zip(states[name], values, strict=True)]
        else:
            states[name] = settled(states[name], self._stacked(values, scope))

    def _step(self, scope: Scope) -> None:
        if self.optimizer is not None and all(scope.present):
            new = self.optimizer.step_rows(scope.parameter, np.array(scope.store.weight), np.array(scope.grad))
            scope.store.weight = self._stored(new, scope)

    def _stacked(self, values: Values, scope: Scope) -> Rows:
        """A row for each worker, of one element for a number or a cell."""
        if isinstance(values, np.ndarray):
            return values
        if isinstance(values[0], float):
            return np.asarray(values, scope.real).reshape(-1, 1)
        return np.stack([np.atleast_1d(value) for value in values])

    def _tensors(self, values: Values, scope: Scope) -> Rows:
        shape = self.workers, scope.parameter.elements
        return np.array(np.broadcast_to(self._stacked(values, scope).astype(scope.real, copy=False), shape))

    def _stored(self, values: Values, scope: Scope) -> Rows:
        return round_to(self._tensors(values, scope), scope.parameter.dtype)

    # --- expressions

    def _value(self, e: Expression, scope: Scope) -> Values:
        done: dict[str, Values] = {}
        e = self._without_codes(e, scope, done)
        if isinstance(e, Read) and (known := self._known(e.name, scope, done)) is not None:
            return np.array(known) if e.name == "grad" else known
        return self._computed(e, scope, done)

    def _computed(self, e: Expression, scope: Scope, done: Mapping[str, Values]) -> Values:
        """Workers whose numbers are the same are computed at once."""
        numbers, tensors = self._read_all(e, scope, done)
        matrices = {own.topology: self._own(own.topology, scope) for own in within(e) if isinstance(own, Own)}
        groups: dict[tuple[float, ...], list[int]] = {}
        for worker, key in enumerate(zip(*numbers.values(), *matrices.values(), strict=True)):
            groups.setdefault(key, []).append(worker)
        if len(groups) <= 1:
            return self._spread(self._evaluated(e, scope, numbers, tensors, slice(None), 0))
        made = [(who, self._evaluated(e, scope, numbers, tensors, who, who[0])) for who in groups.values()]
        return self._put_together(made)

    def _evaluated(
        self, e: Expression, scope: Scope, numbers: Mapping[str, Sequence[float]], tensors: Mapping[str, Rows],
        who: Any, first: int,
    ) -> float | Array:  # fmt: skip
        """For the workers `who`, of whom `first` is one."""
        topologies = any(isinstance(part, Own) for part in within(e))

        def own(topology: Topology) -> float:
            return self._own(topology, scope)[first]

        chosen = {name: rows[who] for name, rows in tensors.items()}
        of_first = {name: values[first] for name, values in numbers.items()}
        return RowEvaluator(scope.real, of_first, chosen, own if topologies else no_round).value(e)

    def _spread(self, value: float | Array) -> Values:
        if isinstance(value, float):
            return [value] * self.workers
        return np.broadcast_to(value, (self.workers, value.shape[-1] if value.ndim else 1))

    def _put_together(self, made: Sequence[tuple[list[int], float | Array]]) -> Values:
        if isinstance(made[0][1], float):
            values = {worker: value for who, value in made for worker in who}
            return [values[worker] for worker in self.everyone]
        arrays = [(who, np.asarray(value)) for who, value in made]
        out = np.empty((self.workers, max(a.shape[-1] for _, a in arrays)), arrays[0][1].dtype)
        for who, array in arrays:
            out[who] = array
        return out

    def _read_all(
        self, e: Expression, scope: Scope, done: Mapping[str, Values]
    ) -> tuple[dict[str, Sequence[float]], dict[str, Rows]]:
        """The numbers, one for each worker, and the tensors and cells that `e` reads."""
        numbers: dict[str, Sequence[float]] = {}
        tensors: dict[str, Rows] = {}
        for read in within(e):
            if isinstance(read, Read | Optimizer):
                values = self._of_all(read, scope, done)
                if isinstance(values, list) and isinstance(values[0], float):
                    numbers[name_of(read)] = values
                else:
                    tensors[name_of(read)] = self._stacked(values, scope)
        return numbers, tensors

    def _of_all(self, read: Read | Optimizer, scope: Scope, done: Mapping[str, Values]) -> Values:
        if isinstance(read, Optimizer) and read.tensor:
            return [self._rule().state(worker, scope.parameter, read.name) for worker in self.everyone]
        if isinstance(read, Optimizer) or read.name == "lr":
            return [float(self._rule().number(0, scope.parameter, read.name))] * self.workers
        if (known := self._known(read.name, scope, dict(done))) is not None:
            return known
        if read.name == "rank":
            return [float(worker) for worker in self.everyone]
        return [float({"t": self.iteration, "workers": self.workers}[read.name])] * self.workers

    def _own(self, topology: Topology, scope: Scope) -> list[float]:
        located = located_topology(topology, self.inner)
        return [own_weight(located, self.workers, scope.round, self.seed, worker) for worker in self.everyone]

    # --- codes and exchanges

    def _encoded(self, encoding: Encode, put: Values, scope: Scope) -> Values:
        rows = self._tensors(put, scope)
        if not at_once(encoding.codec):
            return super()._encoded(encoding, rows, scope)
        shared = shared_keys(self.seed, self.iteration, scope.parameter)
        return encode_all(encoding.codec, rows, self._keys(encoding.place, scope.parameter), 0, shared)

    def _keys(self, place: int, parameter: Parameter) -> tuple[Array, Array]:
        keys = [encoding_keys(self.seed, self.iteration, place, worker, parameter) for worker in self.everyone]
        return np.array([low for low, _ in keys]), np.array([high for _, high in keys])

    def _decoded(self, codes: Values) -> Values:
        return codes.decoded() if isinstance(codes, Codes) else np.stack(super()._decoded(codes))

    def residuals_of(self, place: int, parameter: Parameter) -> Residuals:
        key = place, parameter.number
        if key not in self.residuals:
            made = Residuals.zeros(parameter, self.workers)
            self.residuals[key] = Residuals(np.stack(made.worker), made.owner, made.states)  # type: ignore[arg-type]
        return self.residuals[key]

    def _exchanged(
        self, exchange: Exchange, values: Values, scope: Scope, present: Sequence[bool] | None = None
    ) -> Values:
        coded = isinstance(values, Codes) or isinstance(values[0], Code)
        cell = not coded and self._stacked(values, scope).shape[1] != scope.parameter.elements
        parameter = cell_of(scope.parameter) if cell else scope.parameter
        if by_rows(exchange, values):
            matrix = None if exchange.topology is None else self._matrix(exchange.topology, scope.round)
            residuals = self.residuals_of(exchange.place, parameter)
            rows = values if coded else self._stacked(values, scope)
            keys = self._keys(exchange.place, parameter)
            return RowExchange(exchange, rows, residuals, parameter, self.seed, self.iteration, keys, matrix).run()
        return self._worker_by_worker(exchange, values, scope, coded, cell)

    def _worker_by_worker(self, exchange: Exchange, values: Values, scope: Scope, coded: bool, cell: bool) -> Values:
        if coded:
            given = list(values)
        else:
            rows = self._stacked(values, scope)
            given = [row[0] for row in rows] if cell else list(rows)
        return np.stack([np.atleast_1d(v) for v in super()._exchanged(exchange, given, scope)])

    def _matrix(self, topology: Topology, round: int) -> Any:
        return rows_of(located_topology(topology, self.inner), self.workers, round, self.seed)
