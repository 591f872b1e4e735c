"""The task of the convergence runs: 8 x 8 digits, one hidden layer, N simulated workers, in numpy.

Gradients of all workers are computed at once: every weight is an array with the worker in front.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from relaxc.wire.parameters import Parameter

Array = np.ndarray[Any, Any]
HIDDEN, CLASSES, BATCH = 32, 10, 16
PARAMETERS = (
    Parameter(0, "hidden.weight", (64, HIDDEN), "f32"),
    Parameter(1, "hidden.bias", (HIDDEN,), "f32"),
    Parameter(2, "out.weight", (HIDDEN, CLASSES), "f32"),
    Parameter(3, "out.bias", (CLASSES,), "f32"),
)
SPLITS = ("equal", "skewed")


@cache
def digits() -> tuple[Array, Array, Array, Array]:
    """Training images and labels, held-out images and labels: every fifth is held out."""
    from sklearn.datasets import load_digits

    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target
    out = np.arange(len(labels)) % 5 == 0
    return images[~out], labels[~out], images[out], labels[out]


def start(seed: int) -> list[Array]:
    draw = np.random.default_rng((seed, 1))
    weights = [draw.uniform(-1, 1, p.shape) / np.sqrt(p.shape[0]) if len(p.shape) > 1 else np.zeros(p.shape)
               for p in PARAMETERS]  # fmt: skip
    return [w.astype(np.float32) for w in weights]


def share(split: str, worker: int, workers: int, seed: int) -> Array:
    """Which training samples a worker has. Skewed: sorted by class and dealt in runs, one or a few classes each."""
    labels = digits()[1]
    draw = np.random.default_rng((seed, 2))
    order = draw.permutation(len(labels)) if split == "equal" else np.argsort(labels, kind="stable")
    return np.array_split(order, workers)[worker]


@dataclass
class Batches:
    """The samples of each worker, drawn alike for every spec."""

    split: str
    workers: int
    seed: int

    def __post_init__(self) -> None:
        self.shares = [share(self.split, w, self.workers, self.seed) for w in range(self.workers)]
        self.draws = [np.random.default_rng((self.seed, 3, w)) for w in range(self.workers)]

    def next(self, worker: int) -> tuple[Array, Array]:
        images, labels, _, _ = digits()
        chosen = self.draws[worker].choice(self.shares[worker], BATCH)
        return images[chosen], labels[chosen]


def shaped(weights: list[Array]) -> list[Array]:
    return [w.reshape(p.shape) for w, p in zip(weights, PARAMETERS, strict=True)]


def forward(weights: list[Array], images: Array) -> tuple[Array, Array]:
    """What the hidden layer gives, and the logarithms of the classes' probabilities."""
    hidden = np.maximum(images @ weights[0] + weights[1], 0)
    scores = hidden @ weights[2] + weights[3]
    scores = scores - scores.max(axis=1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


def gradient(weights: list[Array], images: Array, labels: Array) -> list[Array]:
    """Of the mean cross-entropy."""
    weights = shaped(weights)
    hidden, logs = forward(weights, images)
    error = np.exp(logs)
    error[np.arange(len(labels)), labels] -= 1
    error /= len(labels)
    back = (error @ weights[2].T) * (hidden > 0)
    made = [images.T @ back, back.sum(axis=0), hidden.T @ error, error.sum(axis=0)]
    return [g.astype(np.float32).ravel() for g in made]


def held_out(weights: list[Array]) -> tuple[float, float]:
    """Cross-entropy in nats and accuracy on the held-out samples."""
    _, _, images, labels = digits()
    logs = forward(shaped(weights), images)[1]
    return float(-logs[np.arange(len(labels)), labels].mean()), float((logs.argmax(axis=1) == labels).mean())


class Descent:
    """SGD with momentum, a state for each worker and parameter: what `step` is in these runs. `lr` falls to a tenth for
    the last quarter, as in most recipes, so that all end near their own optimum."""

    def __init__(self, rate: float, momentum: float, iterations: int) -> None:
        self._rate, self._momentum, self._iterations = rate, momentum, iterations
        self.done = [0]
        self._held: dict[tuple[int, int], Array] = {}

    def rate(self, worker: int) -> float:
        late = self.done[min(worker, len(self.done) - 1)] >= self._iterations * 3 // 4
        return self._rate * (0.1 if late else 1.0)

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        key = worker, parameter.number
        held = self._held[key] = self._momentum * self._held.get(key, np.zeros_like(grad)) + grad
        moved: Array = (weight - self.rate(worker) * held).astype(weight.dtype)
        return moved

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        settings = {"lr": self.rate(worker), "momentum": self._momentum, "weight_decay": 0.0}
        return settings[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Array:
        return self._held.get((worker, parameter.number), np.zeros(parameter.elements, np.float32))
