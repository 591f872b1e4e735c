"""What `step` is in a simulation: SGD with momentum, of all workers at once."""

from __future__ import annotations

import numpy as np

from relaxc.errors import ModelError
from relaxc.program.functions import Array
from relaxc.simulate.codes import Rows
from relaxc.wire.parameters import Parameter


class Descent:
    """torch.optim.SGD with `momentum`; a worker's state is a row. Both forms of a step give the same bits."""

    def __init__(self, rate: float, momentum: float = 0.0) -> None:
        self.rate, self.momentum = rate, momentum
        self._held: dict[tuple[int, int], Array] = {}

    def step_rows(self, parameter: Parameter, weights: Rows, grads: Rows) -> Rows:
        """`grads` and `weights` of all workers."""
        return self._moved((-1, parameter.number), weights, grads)

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        return self._moved((worker, parameter.number), weight, grad)

    def _moved(self, key: tuple[int, int], weight: Array, grad: Array) -> Array:
        real = grad.dtype.type
        with np.errstate(all="ignore"):
            if self.momentum:
                held = self._held.get(key)
                grad = self._held[key] = grad if held is None else real(self.momentum) * held + grad
            moved: Array = weight - real(self.rate) * grad
        return moved

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        settings = {"lr": self.rate, "momentum": self.momentum, "weight_decay": 0.0, "dampening": 0.0}
        if name not in settings:
            raise _absent(name)
        return settings[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Array:
        if name != "momentum_buffer":
            raise _absent(name)
        of_all = self._held.get((-1, parameter.number))
        if of_all is not None:
            row: Array = of_all[worker]
            return row
        return self._held.get((worker, parameter.number), np.zeros(parameter.elements))


def _absent(name: str) -> ModelError:
    return ModelError(
        "RX0450", f"the simulation's optimiser has no `optimizer.{name}`",
        "it is SGD with momentum; specs that read another optimiser's states can't be simulated",
    )  # fmt: skip
