"""What a program means: N workers in one process, in the simplest possible way.

The oracle for generated code and the engine of `relaxc simulate`. Tensors are flat numpy arrays in the arithmetic
type of their parameter (f32, or f64 for f64 tensors); weights and gradients are rounded to the tensor's dtype when
they are assigned. An uncompressed mean sums in rank order; a real all-reduce may differ from it in its last bits.

A body's gradient exchange that the runtime carries out during backward (gradients.py) has a meaning of its own
where gradients are absent: a worker without one contributes zeros and its residual waits; where no worker has one, or
nothing has landed yet, there is no gradient to step with. Anywhere else an absent gradient reads as zeros.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from relaxc.program.aloft import Asynchronous
from relaxc.program.arithmetic import Evaluator, host_number, name_of
from relaxc.program.evaluate import encode, round_to
from relaxc.program.exchange import (
    Code,
    Occurrence,
    Residuals,
    Row,
    cell_of,
    encoding_keys,
    real_type,
    run_exchange,
    shared_keys,
)  # fmt: skip
from relaxc.program.flights import ARRIVES, Arrivals, Post, Prompt
from relaxc.program.functions import Array
from relaxc.program.gradients import take_gradient
from relaxc.program.ir import (
    ASYNC,
    After,
    Apply,
    Assign,
    Body,
    Decode,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Phase,
    Program,
    Read,
    Reduce,
    Statement,
    Step,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.messages import run_messages
from relaxc.program.paths import Gradient
from relaxc.program.relays import Held
from relaxc.program.store import Late, Rule, Scope, Store, Values, first_value, updated
from relaxc.topology.kinds import located as located_topology
from relaxc.topology.topology import Topology
from relaxc.topology.weights import own_weight, weights
from relaxc.wire.draws import geometric, head_start
from relaxc.wire.parameters import Parameter, elements_before
from relaxc.wire.routes import located as located_route
from relaxc.wire.selection import assign


class Interpreter:
    """Runs `program` for `workers` workers over a model with `parameters`, all starting with `weights` (an array for
    each parameter, zeros by default).

    `optimizer` is what `step`, `lr` and `optimizer.NAME` refer to; without one a step leaves weights as they are. With
    `messages` exchanges run as the moves of their routes, to the same bits. `residuals`, and what relays have
    `held`, are by (place, parameter). `inner` is the workers of a machine, for hierarchies that leave it open.

    `arrivals` says what becomes of asynchronous launches. `members` are the workers that this one runs, all by default;
    several interpreters of one member each, which share `post`, `arrivals` and `residuals`, are workers that go at
    their own pace (program/asynchronous.py).
    """

    def __init__(
        self,
        program: Program,
        parameters: Sequence[Parameter],
        workers: int,
        seed: int = 0,
        weights: Sequence[Array] | None = None,
        optimizer: Rule | None = None,
        messages: bool = False,
        inner: int = 1,
        arrivals: Arrivals | None = None,
        members: Sequence[int] | None = None,
        post: Post | None = None,
    ) -> None:
        self.program, self.parameters, self.workers, self.seed = program, parameters, workers, seed
        self._before, self._elements = elements_before(parameters)
        self.optimizer = optimizer
        self.iteration = 0
        self.inner = inner
        self.bodies = assign([body.selector for body in program.bodies], parameters)
        self.residuals: dict[tuple[int, int], Residuals] = {}
        self.held: dict[tuple[int, int], Held] = {}
        self.everyone = tuple(range(workers))
        self.members = self.everyone if members is None else tuple(members)
        self.asynchronous = Asynchronous(self, arrivals or Prompt(), post or Post(workers, seed))
        self._exchange = run_messages if messages else run_exchange
        self._stores = [self._started(p, None if weights is None else weights[p.number]) for p in parameters]

    @property
    def weights(self) -> list[list[Array]]:
        """By worker and parameter."""
        return [[store.weight[w] for store in self._stores] for w in range(self.workers)]

    def states(self, worker: int, parameter: int) -> dict[str, float | Array]:
        """A worker's states of a parameter, by name."""
        return {name: values[worker] for name, values in self._stores[parameter].states.items()}

    def _started(self, parameter: Parameter, weight: Array | None) -> Store:
        real = real_type(parameter)
        flat = np.zeros(parameter.elements, real) if weight is None else np.asarray(weight).ravel().astype(real)
        store = Store([round_to(flat, parameter.dtype)] * self.workers)
        if (body := self._body(parameter)) is not None:
            scope = self._scope(parameter, body, store, [None] * self.workers)
            for state in body.states:
                values = self._value(state.initial, scope)
                store.states[state.name] = [first_value(v, state.shape, scope) for v in values]
        return store

    def _body(self, parameter: Parameter) -> Body | None:
        number = self.bodies[parameter.number]
        return None if number is None else self.program.bodies[number]

    def _scope(self, parameter: Parameter, body: Body, store: Store, grads: Sequence[Array | None]) -> Scope:
        real = real_type(parameter)
        absent = np.zeros(parameter.elements, real)
        flat = [absent if g is None else np.asarray(g).ravel().astype(real) for g in grads]
        present = [g is not None for g in grads]
        return Scope(parameter, body, store, flat, present, {}, self.iteration, self.everyone)

    # --- an iteration

    def iterate(self, grads: Sequence[Sequence[Array | None]]) -> list[list[Array | None]]:
        """One iteration: `grads[worker][parameter]` as backward made them, None where a worker has none for a
        parameter.

        Return what `.grad` is when backward returns, in the same shape; None where there is no gradient to step with.
        """
        results = [self._parameter(p, [g[p.number] for g in grads]) for p in self.parameters]
        self.iteration += 1
        return [[result[w] for result in results] for w in range(self.workers)]

    def _parameter(self, parameter: Parameter, grads: Sequence[Array | None]) -> list[Array | None]:
        """After its last assignment, which is before the cut, `grad` is what the user sees."""
        body = self._body(parameter) or Body(None, (), (Step(),))
        scope = replace(self._scope(parameter, body, self._stores[parameter.number], grads), members=self.members)
        gradient, rest = take_gradient(body.statements)
        if gradient is not None:
            self._native(gradient, scope)
        self._run(rest, scope)
        return [g if present else None for g, present in zip(scope.grad, scope.present, strict=True)]

    # --- the gradient exchange that runs during backward

    def _native(self, gradient: Gradient, scope: Scope) -> None:
        """`grad` is the mean of `gradient.delay` iterations ago, if any worker had a gradient then."""
        exchange = gradient.exchange
        mean = self._exchanged(exchange, list(scope.grad), scope, scope.present)
        if exchange.feedback == "both" and not any(scope.present):  # nothing is applied, so the owners get it back
            self.residuals[exchange.place, scope.parameter.number].owner += scope.stored(mean[0])
        queue = scope.store.queues.setdefault(-1, deque())
        queue.append(Late(self.iteration + gradient.delay, {"grad": mean}, scope.round, tuple(scope.present)))
        landed = queue.popleft() if queue[0].due <= self.iteration else None
        any_present = landed is not None and any(landed.present)
        for w in range(self.workers):
            scope.present[w] = any_present
            scope.grad[w] = scope.stored(landed.lets["grad"][w] if landed is not None and any_present else 0.0)

    # --- statements

    def _run(self, statements: Sequence[Statement], scope: Scope) -> None:
        scope = self.asynchronous.decided(statements, scope)
        for statement in statements:
            match statement:
                case Let() if self.asynchronous.takes(statement, scope):
                    pass
                case Let(name=name, value=value):
                    scope.lets[name] = self._value(value, scope)
                case Assign(name=name, value=value):
                    self._assign(name, self._value(value, scope), scope)
                case Step():
                    self._step(scope)
                case Every() | Phase() if self._runs(statement, scope):
                    self._block(statement, scope)
                case Every() | Phase():
                    self._land_within(statement.body, scope)
                case After(delay=delay) if delay == ASYNC:
                    self.asynchronous.turn(statement, scope)
                case After():
                    self._launch(statement, scope)

    def _assign(self, name: str, values: Values, scope: Scope) -> None:
        for w in scope.members:
            value = values[w]
            if name == "weight":
                scope.store.weight[w] = scope.stored(value)
            elif name == "grad":
                scope.grad[w], scope.present[w] = scope.stored(value), True
            else:
                scope.store.states[name][w] = updated(scope.store.states[name][w], value)

    def _step(self, scope: Scope) -> None:
        """Workers without a gradient skip it, as torch's optimisers do."""
        if self.optimizer is None:
            return
        for w in scope.members:
            if scope.present[w]:
                new = self.optimizer.step(w, scope.parameter, scope.store.weight[w].copy(), scope.grad[w].copy())
                scope.store.weight[w] = scope.stored(new)

    def _block(self, block: Every | Phase, scope: Scope) -> None:
        run = scope.store.runs.get(block.block, 0)
        scope.store.runs[block.block] = run + 1
        self._run(block.body, replace(scope, round=run))

    def _runs(self, block: Every | Phase, scope: Scope) -> bool:
        """For a phase, the round is the number of earlier runs of the enclosing block."""
        if isinstance(block, Phase):
            return block.first <= scope.round and (block.end is None or scope.round < block.end)
        return self._due(block, scope)

    def _due(self, every: Every, scope: Scope) -> bool:
        """Guards have the same truth on all workers, so worker 0's numbers do."""
        period = host_number(every.period, self._names(every.period, scope, {}, scope.members[0])[0])
        store, block = scope.store, every.block
        reached = store.reached.get(block, 0)
        store.reached[block] = reached + 1
        if every.how == "geometric":
            return geometric(self.seed, block, reached, period)
        if every.how == "staggered" and reached == 0:
            store.waited[block] = head_start(self._before[scope.parameter.number], self._elements, period)
        waited = store.waited.get(block, 0) + 1
        store.waited[block] = 0 if waited >= period else waited
        return waited >= period

    def _launch(self, after: After, scope: Scope) -> None:
        """Launch, then land what is due. Where it is the gradient that is under way, there is none to step with in an
        iteration in which it doesn't land."""
        due = self.iteration + after.delay
        queue = scope.store.queues.setdefault(after.block, deque())
        queue.append(Late(due, dict(scope.lets), scope.round, tuple(scope.present)))
        landed = self._land(after, scope)
        if not landed and any(isinstance(s, Assign) and s.name == "grad" for s in flattened(after.body)):
            scope.present[:] = [False] * self.workers
            scope.grad[:] = [scope.tensor(0.0) for _ in range(self.workers)]

    def _land(self, after: After, scope: Scope) -> bool:
        """Run the block for what is due, if anything is."""
        queue = scope.store.queues.get(after.block)
        if not queue or queue[0].due > self.iteration:
            self._land_within(after.body, scope)
            return False
        late = queue.popleft()
        self._run(after.body, replace(scope, lets=late.lets, round=late.round))
        return True

    def _land_within(self, statements: Sequence[Statement], scope: Scope) -> None:
        """What was launched in a block lands whether or not that block runs."""
        for statement in statements:
            if isinstance(statement, After) and statement.asynchronous:
                self.asynchronous.land_only(statement, scope)
            elif isinstance(statement, After):
                self._land(statement, scope)
            elif isinstance(statement, Every | Phase):
                self._land_within(statement.body, scope)

    # --- expressions

    def _value(self, e: Expression, scope: Scope) -> Values:
        """A value for each worker. What is sent or received is done first; the rest is arithmetic of one worker
        alone."""
        done: dict[str, Values] = {}
        e = self._without_codes(e, scope, done)
        if isinstance(e, Read) and (known := self._known(e.name, scope, done)) is not None:
            return list(known)
        return [self._evaluator(e, scope, done, w).value(e) if w in scope.members else None for w in self.everyone]

    def _evaluator(self, e: Expression, scope: Scope, done: dict[str, Values], worker: int) -> Evaluator:
        def own(topology: Topology) -> float:
            return own_weight(located_topology(topology, self.inner), self.workers, scope.round, self.seed, worker)

        return Evaluator(scope.real, *self._names(e, scope, done, worker), own)

    def _without_codes(self, e: Expression, scope: Scope, done: dict[str, Values]) -> Expression:
        """`e` with its exchanges, encodes and decodes replaced by names that `done` binds to their values."""
        match e:
            case Exchange(value=value) if self.asynchronous.launches(e, scope):
                self.asynchronous.post_all(e, self._value(value, scope), scope)
                return Read(f"{ARRIVES}{e.place}")
            case Exchange(value=value):
                values = self._exchanged(e, self._value(value, scope), scope)
            case Encode(value=value):
                values = self._encoded(e, self._value(value, scope), scope)
            case Decode(code=code):
                values = self._decoded(self._value(code, scope))
            case Apply(arguments=arguments):
                return replace(e, arguments=tuple(self._without_codes(a, scope, done) for a in arguments))
            case Reduce(argument=argument):
                return replace(e, argument=self._without_codes(argument, scope, done))
            case _:
                return e
        name = f"#{len(done)}"
        done[name] = values
        return Read(name)

    def _encoded(self, encoding: Encode, put: Values, scope: Scope) -> Values:
        return [
            self._code(encoding, scope.tensor(put[w]), w, scope) if w in scope.members else None for w in self.everyone
        ]

    def _decoded(self, codes: Values) -> Values:
        return [None if code is None else code.decoded() for code in codes]

    def _code(self, encoding: Encode, value: Array, worker: int, scope: Scope) -> Code:
        moment = self.asynchronous.moment(encoding, worker, scope)
        keys = encoding_keys(self.seed, moment, encoding.place, worker, scope.parameter)
        shared = shared_keys(self.seed, moment, scope.parameter)
        kept = self.residuals_of(encoding.place, scope.parameter) if encoding.codec.states else None
        states = {} if kept is None else kept.states[worker]
        message = encode(encoding.codec, value, keys, states=states, shared=shared)
        return Code(encoding.codec, value, message, states, shared=shared)

    def _exchanged(
        self, exchange: Exchange, values: Values, scope: Scope, present: Sequence[bool] | None = None
    ) -> Values:
        if scope.members != self.everyone:
            raise ValueError("workers that go at their own pace have no synchronous exchange")
        if not isinstance(values[0], Code) and np.ndim(values[0]) == 0:
            scope = replace(scope, parameter=cell_of(scope.parameter))
            return [np.asarray(v[0]) for v in self._sent(exchange, values, scope, None)]
        return self._sent(exchange, values, scope, present)

    def _sent(self, exchange: Exchange, values: Values, scope: Scope, present: Sequence[bool] | None) -> Values:
        sent = [v if isinstance(v, Code) else scope.tensor(v) for v in values]
        residuals = self.residuals_of(exchange.place, scope.parameter)
        rows = None if exchange.topology is None else self._rows(exchange.topology, scope.round)
        held = self.held.setdefault((exchange.place, scope.parameter.number), [{} for _ in range(self.workers)])
        exchange = replace(exchange, route=located_route(exchange.route, self.inner))
        this = Occurrence(exchange, sent, residuals, scope.parameter, self.seed, self.iteration, rows, present, held)
        return list(self._exchange(this))

    def residuals_of(self, place: int, parameter: Parameter) -> Residuals:
        return self.residuals.setdefault((place, parameter.number), Residuals.zeros(parameter, self.workers))

    def _rows(self, topology: Topology, round: int) -> list[Row]:
        topology = located_topology(topology, self.inner)
        return [weights(topology, self.workers, round, self.seed, rank) for rank in range(self.workers)]

    # --- names

    def _known(self, name: str, scope: Scope, done: dict[str, Values]) -> Values | None:
        """What a name that is no number of the host's own stands for."""
        if name == "weight":
            return scope.store.weight
        if name == "grad":
            return scope.grad
        return done.get(name, scope.lets.get(name, scope.store.states.get(name)))

    def _names(
        self, e: Expression, scope: Scope, done: dict[str, Values], worker: int
    ) -> tuple[dict[str, float], dict[str, Array]]:
        """The numbers and the tensors that `e` reads, for one worker."""
        numbers: dict[str, float] = {}
        tensors: dict[str, Array] = {}
        for read in within(e):
            if isinstance(read, Read | Optimizer) and not self.asynchronous.awaits(read, scope):
                value = self._read(read, scope, done, worker)
                if isinstance(value, float):
                    numbers[name_of(read)] = value
                else:
                    tensors[name_of(read)] = value
        return numbers, tensors

    def _read(self, read: Read | Optimizer, scope: Scope, done: dict[str, Values], worker: int) -> Any:
        if isinstance(read, Optimizer):
            if read.tensor:
                return self._rule().state(worker, scope.parameter, read.name)
            return float(self._rule().number(worker, scope.parameter, read.name))
        if read.name == "lr":
            return float(self._rule().number(worker, scope.parameter, "lr"))
        known = self._known(read.name, scope, done)
        if known is not None:
            return known[worker]
        return float({"t": self.iteration, "workers": self.workers, "rank": worker}[read.name])

    def _rule(self) -> Rule:
        if self.optimizer is None:
            raise ValueError("this program reads what is the optimizer's: give the interpreter one")
        return self.optimizer
