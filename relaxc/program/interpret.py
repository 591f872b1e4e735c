"""What a program means: N workers in one process, in the simplest possible way.

The oracle for generated code and the engine of `relaxc simulate`. Tensors are flat numpy arrays in the arithmetic
type of their parameter (f32, or f64 for f64 tensors), already rounded to the tensor's dtype. An uncompressed mean
sums in rank order; a real all-reduce may differ from it in its last bits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from relaxc.program.evaluate import round_to
from relaxc.program.exchange import Array, Exchange, Losses, real_type, run_carried, run_mean
from relaxc.program.ir import After, Assign, Carried, Expression, Let, Mean, Program, Read, Statement, Step
from relaxc.wire.parameters import Parameter
from relaxc.wire.selection import assign

StepFunction = Callable[[int, int, Array | None], None]
"""step(worker, parameter number, gradient): the optimiser's share; None where nothing landed."""

Values = list[Array]
"""One array per worker."""


@dataclass(frozen=True)
class _Late:
    """A launched block that has not landed: when it is due, its lets, and which workers had a gradient at the
    launch."""

    due: int
    lets: dict[str, Values]
    present: tuple[bool, ...]


@dataclass
class _Scope:
    """One iteration of one parameter. `grad` is None where nothing has landed."""

    parameter: Parameter
    present: tuple[bool, ...]
    grad: Values | None
    lets: dict[str, Values] = field(default_factory=dict)


class Interpreter:
    """Runs `program` for `workers` workers over a model with `parameters`."""

    def __init__(self, program: Program, parameters: Sequence[Parameter], workers: int, seed: int = 0) -> None:
        self.program, self.parameters, self.workers, self.seed = program, parameters, workers, seed
        self.iteration = 0
        self.bodies = assign([body.selector for body in program.bodies], parameters)
        self.losses: dict[tuple[int, int], Losses] = {}
        """By (place, parameter)."""
        self._late: dict[int, deque[_Late]] = {}

    def iterate(
        self, grads: Sequence[Sequence[Array | None]], step: StepFunction | None = None
    ) -> list[list[Array | None]]:
        """One iteration: `grads[worker][parameter]` as backward made them, None where a worker has none for a
        parameter.

        Return what `.grad` is afterwards, in the same shape; None where nothing landed.
        """
        results = [
            self._iterate(parameter, [g[parameter.number] for g in grads], step) for parameter in self.parameters
        ]
        self.iteration += 1
        return [[None if r is None else r[w] for r in results] for w in range(self.workers)]

    def _iterate(self, parameter: Parameter, grads: Sequence[Array | None], step: StepFunction | None) -> Values | None:
        real = real_type(parameter)
        flat = [np.zeros(parameter.elements, real) if g is None else g.ravel().astype(real) for g in grads]
        scope = _Scope(parameter, tuple(g is not None for g in grads), flat)
        body = self.bodies[parameter.number]
        if body is not None:
            self._run(self.program.bodies[body].statements, scope, step)
        return scope.grad

    # --- statements

    def _run(self, body: Sequence[Statement], scope: _Scope, step: StepFunction | None) -> None:
        for statement in body:
            match statement:
                case Let(name=name, value=value):
                    scope.lets[name] = self._value(value, scope)
                case Assign(name="grad", value=value):
                    values = self._value(value, scope)
                    rounded = [round_to(v, scope.parameter.dtype) for v in values]
                    scope.grad = rounded if any(scope.present) else None
                case After():
                    self._after(statement, scope, step)
                case Step() if step is not None:
                    for worker in range(self.workers):
                        step(worker, scope.parameter.number, scope.grad[worker] if scope.grad else None)

    def _after(self, after: After, scope: _Scope, step: StepFunction | None) -> None:
        """Launch, then land what is due. Until something lands there is no gradient to apply."""
        queue = self._late.setdefault(scope.parameter.number, deque())
        queue.append(_Late(self.iteration + after.delay, scope.lets, scope.present))
        scope.grad = None
        while queue and queue[0].due <= self.iteration:
            late = queue.popleft()
            landing = _Scope(scope.parameter, late.present, scope.grad, late.lets)
            self._run(after.body, landing, step)
            scope.grad = landing.grad

    # --- expressions

    def _value(self, e: Expression, scope: _Scope) -> Values:
        match e:
            case Read(name="grad") if scope.grad is not None:
                return scope.grad
            case Read(name=name):
                return scope.lets[name]
            case Mean(codec=None, value=value):
                return [self._plain_mean(self._value(value, scope))] * self.workers
            case Mean(codec=codec, value=value) | Carried(codec=codec, value=value) if codec is not None:
                values = self._value(value, scope)
                key = (e.place, scope.parameter.number)
                losses = self.losses.setdefault(key, Losses.zeros(scope.parameter, self.workers))
                exchange = Exchange(e, codec, values, scope.present, losses, scope.parameter, self.seed, self.iteration)
                return [self._exchange(exchange)] * self.workers
        raise NotImplementedError(f"{type(e).__name__} between exchanges")

    def _plain_mean(self, values: Values) -> Array:
        with np.errstate(all="ignore"):
            total = values[0]
            for value in values[1:]:
                total = total + value
            mean: Array = total * total.dtype.type(1 / self.workers)
        return mean

    def _exchange(self, exchange: Exchange) -> Array:
        """Where no worker has a gradient nothing is applied, and the owners get back what left their residuals."""
        result = run_carried(exchange) if isinstance(exchange.mean, Carried) else run_mean(exchange)
        if not any(exchange.present) and exchange.mean.feedback == "both":
            exchange.losses.owner += round_to(result, exchange.parameter.dtype)
        return result
