"""Moniqua (Lu and De Sa 2020, algorithm 1), stochastic rounding: q_j = floor(x_j / s + u_j) mod 2^8, B = 2^8 s;
x^_j = x_i + ((q_j s - x_i + B / 2) mod B - B / 2); x_i += sum_j W_ij (x^_j - x^_i) + update, the gradient taken at x_i.

Where a block of 512 elements would come out wrong, its sender's values take the place of x_i: x^_j is right then, too."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references.harness.team import Given, Team
from torch import Tensor

TURN, BLOCK = 256, 512


def rule(team: Team, given: Given, unit: float = 0.001) -> Iterator[None]:
    iteration, unit = 0, float(torch.tensor(unit, dtype=torch.float32))  # which travels with each block
    while True:
        put = [w.weight.reshape(-1) for w in team]
        levels = [torch.floor(x / unit + given.uniforms(iteration, i)) for i, x in enumerate(put)]
        gradients, matrix = [w.gradient for w in team], given.matrix(iteration)
        for i, worker in enumerate(team):
            own = decoded(levels[i], put[i], put[i], unit)
            moved = sum(
                float(matrix[i][j]) * (decoded(levels[j], put[i], put[j], unit) - own) for j in range(len(team))
            )
            worker.weight = worker.weight + moved.reshape(worker.weight.shape)
            worker.step(gradients[i])
        iteration += 1
        yield


def decoded(level: Tensor, own: Tensor, sent: Tensor, unit: float) -> Tensor:
    code, wide = torch.remainder(level, TURN) * unit, TURN * unit

    def near(key: Tensor) -> Tensor:
        return key + torch.remainder(code - key + wide / 2, wide) - wide / 2

    found = near(own)
    wrong = (found - level * unit).abs() > unit / 2
    parts = zip(wrong.split(BLOCK), found.split(BLOCK), near(sent).split(BLOCK), strict=True)
    return torch.cat([again if bad.any() else good for bad, good, again in parts])
