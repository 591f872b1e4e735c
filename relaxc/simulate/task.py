"""What is trained in a simulation: a user's task, or one of those that come with relaxc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from relaxc.errors import ModelError
from relaxc.program.functions import Array
from relaxc.usage import UsageError
from relaxc.users_code import described, found
from relaxc.wire.parameters import Parameter

SHIPPED = {"digits": "relaxc.simulate.digits:Digits", "quadratic": "relaxc.simulate.quadratic:Quadratic"}
DTYPES = {"float64": "f64", "float32": "f32", "float16": "f16"}
RATE, COMPUTATION = 0.1, 0.1
"""Learning rate, and seconds of an iteration without exchange, where neither the task nor the command says them."""

Named = Mapping[str, Array]
T = TypeVar("T")


class Task(Protocol):
    """Made by a factory of (workers, seed). Arrays are numpy's, by the name of the parameter.

    A task may also have `gradients(iteration, weights)`, of all workers at once, whose arrays have the worker in front:
    that is what makes a thousand of them quick. And what the command line does not say: `rate` and `momentum` of its
    SGD, and `computation`, the seconds that an iteration takes without exchange.
    """

    def weights(self) -> Named:
        """What all workers start with."""

    def gradient(self, worker: int, iteration: int, weights: Named) -> Named:
        """Of a worker's own loss on its batch of that iteration."""

    def loss(self, weights: Named) -> float:
        """What is to become small, of the mean of all workers' weights."""


@dataclass(frozen=True)
class Loaded:
    """A task with its parameters read and its mistakes turned into diagnostics."""

    task: Task
    name: str
    parameters: tuple[Parameter, ...]
    starts: tuple[Array, ...]

    def setting(self, name: str, default: float) -> float:
        return float(getattr(self.task, name, default))

    def loss(self, weights: Sequence[Array]) -> float:
        said: Any = self._tried("loss", lambda: self.task.loss(self._named(weights)))
        try:
            return float(said)
        except (TypeError, ValueError):
            raise ModelError(
                "RX0452", f"loss of {self.name} gave a {type(said).__name__}, not a number", "return a float"
            ) from None

    def gradient(self, worker: int, iteration: int, weights: Sequence[Array]) -> list[Array]:
        made = self._tried("gradient", lambda: self.task.gradient(worker, iteration, self._named(weights)))
        return [self._flat(made, p, ()) for p in self.parameters]

    def gradients(self, iteration: int, weights: Sequence[Array]) -> list[Array]:
        """Of all workers; `weights` and what is returned have a row for each."""
        workers = len(weights[0])
        of_all = getattr(self.task, "gradients", None)
        if of_all is None:
            each = [self.gradient(w, iteration, [rows[w] for rows in weights]) for w in range(workers)]
            return [np.stack(rows) for rows in zip(*each, strict=True)]
        named = {p.name: rows.reshape(workers, *p.shape) for p, rows in zip(self.parameters, weights, strict=True)}
        made = self._tried("gradients", lambda: of_all(iteration, named))
        return [self._flat(made, p, (workers,)) for p in self.parameters]

    def _named(self, weights: Sequence[Array]) -> dict[str, Array]:
        return {p.name: w.reshape(p.shape) for p, w in zip(self.parameters, weights, strict=True)}

    def _flat(self, made: Any, parameter: Parameter, front: tuple[int, ...]) -> Array:
        array = np.asarray(made[parameter.name]) if isinstance(made, Mapping) and parameter.name in made else None
        if array is None or array.shape != (*front, *parameter.shape):
            has = "none" if array is None else f"one of shape {array.shape}"
            raise ModelError(
                "RX0452", f"{self.name} has no gradient of {parameter.name}, but {has}",
                f"return a dictionary with an array of shape {(*front, *parameter.shape)} for it",
            )  # fmt: skip
        return array.reshape(*front, parameter.elements)

    def _tried(self, what: str, call: Callable[[], T]) -> T:
        return tried(f"{what} of {self.name}", call)


def load_task(option: str, workers: int, seed: int) -> Loaded:
    """The task that `package.module:factory` makes, or one that comes with relaxc. Raise ModelError (RX0451) with the
    user's own line where that fails, UsageError where it can't be one."""
    module, colon, name = SHIPPED.get(option, option).partition(":")
    if not colon or not module or not name:
        raise UsageError(f"--task takes package.module:task, or one of {', '.join(SHIPPED)}, but got {option!r}")
    task: Task = tried(option, lambda: _made(module, name, workers, seed))
    missing = [part for part in ("weights", "gradient", "loss") if not callable(getattr(task, part, None))]
    if missing:
        raise ModelError("RX0451", f"{option} gives a {type(task).__name__} without {missing[0]}()",
                         "a task has weights(), gradient(worker, iteration, weights) and loss(weights)")  # fmt: skip
    named: Any = tried(f"weights of {option}", task.weights)
    if not isinstance(named, Mapping) or not named:
        raise ModelError("RX0452", f"{option} has no weights", "return a dictionary of numpy arrays by name")
    arrays = {str(key): np.asarray(value) for key, value in named.items()}
    parameters = tuple(_parameter(n, key, array, option) for n, (key, array) in enumerate(arrays.items()))
    return Loaded(task, option, parameters, tuple(array.ravel() for array in arrays.values()))


def _parameter(number: int, name: str, array: Array, option: str) -> Parameter:
    if array.dtype.name not in DTYPES:
        raise ModelError("RX0452", f"{name} of {option} is of {array.dtype.name}", f"use {' or '.join(DTYPES)}")
    return Parameter(number, name, array.shape, DTYPES[array.dtype.name])


def _made(module: str, name: str, workers: int, seed: int) -> Any:
    made = found(f"{module}:{name}")
    return made(workers, seed) if callable(made) else made


def tried(what: str, call: Callable[[], T]) -> T:
    """What `call` gives. Raise ModelError with the user's own line where it fails."""
    try:
        return call()
    except (ModelError, UsageError):
        raise
    except MemoryError as error:
        raise ModelError("RX0451", f"{what} failed: {described(error)}", "simulate fewer workers") from error
    except (Exception, SystemExit) as error:
        raise ModelError(
            "RX0451", f"{what} failed: {described(error)}",
            "a task is made by a callable of (workers, seed), and has weights(), gradient(worker, iteration, weights) "
            "and loss(weights)",
        ) from error  # fmt: skip
