"""specs/powersgd.relax in real processes against the algorithm written out in plain torch, 50 steps in f64."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.ir import Assign, Exchange
from relaxc.resources import folder
from relaxc.wire.low_rank import first_q

STEPS, MOMENTUM = 50, 0.9
SHAPES = ((40, 30), (7,), (1,), (3, 4, 2, 2), (5, 2))


def rate(step: int) -> float:
    return 0.05 / (1 + step / 40)


def problem(rank: int, number: int) -> tuple[Any, Any]:
    """Worker `rank`'s loss is sum(a * (w - b)^2) / 2."""
    import torch

    draw = torch.Generator().manual_seed(1000 * rank + number)
    a = 0.5 + torch.rand(SHAPES[number], generator=draw, dtype=torch.float64)
    return a, torch.randn(SHAPES[number], generator=draw, dtype=torch.float64)


def start(number: int) -> Any:
    import torch

    return torch.randn(SHAPES[number], generator=torch.Generator().manual_seed(7 + number), dtype=torch.float64)


def train(rank: int, workers: int) -> list[list[Any]]:
    import torch

    import relaxc

    model = torch.nn.ParameterList([start(number) for number in range(len(SHAPES))])
    optimizer = torch.optim.SGD(model.parameters(), rate(0), momentum=MOMENTUM)
    relaxed = relaxc.compile("powersgd").attach(model, optimizer, timeout=60, check_every=10)
    problems = [problem(rank, number) for number in range(len(SHAPES))]
    made = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        losses = [(a * (w - b) ** 2).sum() / 2 for w, (a, b) in zip(model, problems, strict=True)]
        sum(losses, torch.tensor(0.0)).backward()
        optimizer.step()
        made.append([weight.detach().clone().numpy() for weight in model])
    relaxed.detach()
    return made


@dataclass
class Worker:
    a: Any
    b: Any
    weight: Any
    rate: float = 0.0
    buffer: Any = None

    @property
    def gradient(self) -> Any:
        return self.a * (self.weight - self.b)

    def step(self, gradient: Any) -> None:
        self.buffer = gradient if self.buffer is None else MOMENTUM * self.buffer + gradient
        self.weight = self.weight - self.rate * self.buffer


def place() -> int:
    """Of the spec's exchange of low rank."""
    text = (folder("specs") / "powersgd.relax").read_text()
    body = pipeline.to_program(pipeline.to_spec(Source("powersgd", text), {})).bodies[-1]
    (statement,) = [s for s in body.statements if isinstance(s, Assign)]
    assert isinstance(statement.value, Exchange) and statement.value.rank == 4
    return statement.value.place


def simulated(workers: int, number: int) -> list[Any]:
    """The weights after each step, which are the same on all workers."""
    import torch

    def normal(count: int) -> Any:
        return torch.from_numpy(first_q(SEED, place(), number, count))

    team = [Worker(*problem(rank, number), start(number)) for rank in range(workers)]
    rule = importlib.import_module("references.powersgd").rule(team, SimpleNamespace(normal=normal))
    made = []
    for step in range(STEPS):
        for worker in team:
            worker.rate = rate(step)
        next(rule)
        made.append(team[0].weight.numpy())
    return made


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_powersgd_is_the_published_algorithm(pool: Pool, workers: int) -> None:
    wanted = [simulated(workers, number) for number in range(len(SHAPES))]
    for found in pool.run(train, workers):
        for step, weights in enumerate(found):
            for number, weight in enumerate(weights):
                right = wanted[number][step]
                assert np.abs(weight - right).max() < 1e-9 * np.abs(right).max(), (step, number)
