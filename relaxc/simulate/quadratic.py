"""A task in closed form: each worker has a quadratic of its own, and their mean one minimum."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from relaxc.program.functions import Array

SIZE = 64


class Quadratic:
    """Worker w has the loss 1/2 sum_i c_i (x_i - b_wi)^2, with curvatures c from 0.1 to 1 and minima b drawn from the
    normal distribution. `loss` is what the mean loss is above its least: 1/2 sum_i c_i (x_i - mean of b_i)^2. All start
    at 0. Exact averaging at the rate r leaves (1 - r c_i)^t of the way after t iterations.
    """

    rate = 0.5

    def __init__(self, workers: int, seed: int) -> None:
        self.curvatures = np.linspace(0.1, 1, SIZE).astype(np.float32)
        self.minima = np.random.default_rng((seed, 1)).normal(size=(workers, SIZE)).astype(np.float32)
        self.minimum = self.minima.mean(axis=0, dtype=np.float64)

    def weights(self) -> Mapping[str, Array]:
        return {"x": np.zeros(SIZE, np.float32)}

    def gradient(self, worker: int, iteration: int, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"x": self.curvatures * (weights["x"] - self.minima[worker])}

    def gradients(self, iteration: int, weights: Mapping[str, Array]) -> Mapping[str, Array]:
        return {"x": self.curvatures * (weights["x"] - self.minima)}

    def loss(self, weights: Mapping[str, Array]) -> float:
        away = weights["x"].astype(np.float64) - self.minimum
        return float(0.5 * (self.curvatures * away * away).sum())
