"""The hierarchical spec on machines of several workers against tests/references/hierarchical.py, which shares no code with
relaxc: to 1e-9 after each of 50 steps, in float64."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from pool import Pool
from references import hierarchical

STEPS, RATE, MOMENTUM = 50, 0.05, 0.9
SHAPES = ((40, 30), (7,), (1,))


def start(number: int) -> torch.Tensor:
    return torch.randn(SHAPES[number], generator=torch.Generator().manual_seed(7 + number)).double()


def problem(rank: int, number: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A worker's loss of a parameter is sum(a * (w - b)^2) / 2."""
    draw = torch.Generator().manual_seed(1000 * rank + number)
    return 0.5 + torch.rand(SHAPES[number], generator=draw).double(), torch.randn(
        SHAPES[number], generator=draw
    ).double()


class Worker:
    """One worker's share of one parameter, with SGD with momentum written out."""

    def __init__(self, rank: int, number: int) -> None:
        self.weight, self.speed = start(number), torch.zeros(SHAPES[number]).double()
        self.a, self.b = problem(rank, number)

    @property
    def gradient(self) -> torch.Tensor:
        return self.a * (self.weight - self.b)

    def step(self, gradient: torch.Tensor) -> None:
        self.speed = MOMENTUM * self.speed + gradient
        self.weight = self.weight - RATE * self.speed


def simulated(workers: int, inner: int, number: int) -> list[np.ndarray[Any, Any]]:
    team = [Worker(rank, number) for rank in range(workers)]
    running = hierarchical.rule(team, None, inner)
    made = []
    for _ in range(STEPS):
        next(running)
        made.append(team[0].weight.numpy().copy())
    return made


def train(rank: int, workers: int, inner: int) -> list[list[Any]]:
    import relaxc

    model = torch.nn.ParameterList([start(number) for number in range(len(SHAPES))])
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    os.environ["LOCAL_WORLD_SIZE"] = str(inner)
    try:
        relaxed = relaxc.compile("hierarchical").attach(model, optimizer, timeout=60)
    finally:
        del os.environ["LOCAL_WORLD_SIZE"]
    made = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        parts = [(weight, *problem(rank, number)) for number, weight in enumerate(model)]
        torch.stack([(a * (w - b) ** 2).sum() / 2 for w, a, b in parts]).sum().backward()
        optimizer.step()
        made.append([weight.detach().numpy().copy() for weight in model])
    relaxed.detach()
    return made


@pytest.mark.parametrize(("workers", "inner"), [(2, 1), (2, 2), (4, 2), (6, 2), (6, 3)])
def test_it_trains_as_the_reference(pool: Pool, workers: int, inner: int) -> None:
    wanted = [simulated(workers, inner, number) for number in range(len(SHAPES))]
    for found in pool.run(train, workers, inner):
        for step in range(STEPS):
            for number in range(len(SHAPES)):
                right = wanted[number][step]
                assert np.abs(found[step][number] - right).max() < 1e-9 * np.abs(right).max(), (step, number)


def test_other_machines_give_another_result() -> None:
    """So that the tolerance tells them apart."""
    one, other = simulated(4, 1, 0), simulated(4, 2, 0)
    assert np.abs(one[-1] - other[-1]).max() > 1e-6
