"""The task `digits`: 8 x 8 images of digits (UCI, through scikit-learn), one hidden layer of 32, batches of 16.

Gradients of all workers are computed at once. Batches are a function of (seed, worker, iteration).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import numpy as np

from relaxc.errors import ModelError
from relaxc.program.functions import Array

HIDDEN, CLASSES, BATCH, PIXELS = 32, 10, 16, 64
SHAPES = {
    "hidden.weight": (PIXELS, HIDDEN), "hidden.bias": (HIDDEN,), "out.weight": (HIDDEN, CLASSES), "out.bias": (CLASSES,)
}  # fmt: skip


@cache
def samples() -> tuple[Array, Array, Array, Array]:
    """Training images and labels, held-out images and labels: every fifth is held out."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ModelError("RX0453", "the task digits takes scikit-learn, which is not installed",
                         "pip install scikit-learn, or take --task quadratic") from error  # fmt: skip
    data = load_digits()
    images, labels = (data.data / 16).astype(np.float32), data.target
    out = np.arange(len(labels)) % 5 == 0
    return images[~out], labels[~out], images[out], labels[out]


class Digits:
    """`loss` is the cross-entropy on held-out samples, in nats. Each worker has its own share of the others."""

    rate, momentum = 0.1, 0.9

    def __init__(self, workers: int, seed: int) -> None:
        labels = samples()[1]
        order = np.random.default_rng((seed, 2)).permutation(len(labels))
        self.seed = seed
        self.shares = [part if len(part) else order[:1] for part in np.array_split(order, workers)]

    def weights(self) -> Mapping[str, Array]:
        draw = np.random.default_rng((self.seed, 1))
        made = {
            name: draw.uniform(-1, 1, shape) / np.sqrt(shape[0]) if len(shape) > 1 else np.zeros(shape)
            for name, shape in SHAPES.items()
        }
        return {name: array.astype(np.float32) for name, array in made.items()}

    def batch(self, worker: int, iteration: int) -> Array:
        """Which samples."""
        return np.random.default_rng((self.seed, 3, worker, iteration)).choice(self.shares[worker], BATCH)

    def gradient(self, worker: int, iteration: int, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        made = _gradients({k: w[None] for k, w in weights.items()}, self.batch(worker, iteration)[None])
        return {name: array[0] for name, array in made.items()}

    def gradients(self, iteration: int, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        return _gradients(weights, np.stack([self.batch(w, iteration) for w in range(len(self.shares))]))

    def loss(self, weights: Mapping[str, Array]) -> float:
        _, _, images, labels = samples()
        _, logs = _forward({k: w[None] for k, w in weights.items()}, images[None])
        return float(-logs[0, np.arange(len(labels)), labels].mean())


def _forward(weights: Mapping[str, Array], images: Array) -> tuple[Array, Array]:
    """What the hidden layers give, and the logarithms of the classes' probabilities: (workers, samples, ...)."""
    hidden = np.maximum(images @ weights["hidden.weight"] + weights["hidden.bias"][:, None], 0)
    scores = hidden @ weights["out.weight"] + weights["out.bias"][:, None]
    scores = scores - scores.max(axis=-1, keepdims=True)
    return hidden, scores - np.log(np.exp(scores).sum(axis=-1, keepdims=True))


def _gradients(weights: Mapping[str, Array], chosen: Array) -> Mapping[str, Array]:
    """Of the mean cross-entropy of each worker's samples, `chosen` (workers, samples)."""
    images, labels, _, _ = samples()
    seen, wanted = images[chosen], labels[chosen]
    hidden, logs = _forward(weights, seen)
    error = np.exp(logs)
    workers, count = chosen.shape
    error[np.arange(workers)[:, None], np.arange(count), wanted] -= 1
    error /= count
    back = (error @ weights["out.weight"].transpose(0, 2, 1)) * (hidden > 0)
    return {
        "hidden.weight": seen.transpose(0, 2, 1) @ back, "hidden.bias": back.sum(axis=1),
        "out.weight": hidden.transpose(0, 2, 1) @ error, "out.bias": error.sum(axis=1),
    }  # fmt: skip
