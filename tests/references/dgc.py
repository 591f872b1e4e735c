"""Deep gradient compression (Lin et al. 2018, algorithm 4), clipping per parameter: u = m u + g, v = v + u, the largest of v are
sent; where sent, u = v = 0. Vectors go in full, with the optimiser."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references import allreduce
from references.harness.kept import largest
from references.harness.team import MATRICES, Given, Team, average, place
from torch import Tensor

SHAPES = MATRICES
SETTINGS = {"epoch": 12}
MOMENTUM = 0


def rule(team: Team, given: Given, epoch: int, momentum: float = 0.9, clip: float = 1.0) -> Iterator[None]:
    if team[0].weight.ndim < 2:
        return allreduce.rule(team, given)
    return compressed(team, epoch, momentum, clip)


def compressed(team: Team, epoch: int, momentum: float, clip: float) -> Iterator[None]:
    velocity, held = [0 * w.weight for w in team], [0 * w.weight for w in team]
    for t in range(10**6):
        part, sent = (0.25, 0.0625, 0.001)[min(t // epoch, 2)], []
        for i, worker in enumerate(team):
            velocity[i] = momentum * velocity[i] + clipped(worker.gradient, clip / len(team) ** 0.5)
            held[i] = held[i] + velocity[i]
            sent.append(largest(part, held[i]))
            velocity[i] = torch.where(sent[i] == 0, velocity[i], 0.0)
            held[i] = torch.where(sent[i] == 0, held[i], 0.0)
        place(team, [team[0].weight - team[0].rate * average(sent)] * len(team))
        yield


def clipped(x: Tensor, norm: float) -> Tensor:
    return x * torch.clamp(norm / x.norm(), max=1.0)
