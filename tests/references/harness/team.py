"""The problem that specs and their references both train, the simulated workers, and what a reference is given.

Nothing here or in the references comes from relaxc: they are plain torch in float64, written from the papers' update rules.
What a run draws or is configured with (mixing matrices, random bits, schedules that are shared by seed, who sums what) is
injected by the test as `Given`.

A reference is a module named after its spec, with

    def rule(team, given, **settings)   a generator: it carries out one iteration each time that it is resumed
    SETTINGS = {"period": 5}            optional: parameters of the spec and of the rule, short enough for the test
    MOMENTUM = 0                        optional: of SGD, where the algorithm is the optimiser or its theory has none
    DECAY = 0.01                        optional: SGD's weight decay, where the algorithm reads it
    SHAPES = MATRICES                   optional: of the parameters
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

STEPS, MOMENTUM = 50, 0.9
SHAPES = ((40, 30), (7,), (1,))
"""A parameter of several blocks, one of a part of a block, one of a single element."""
MATRICES = ((40, 30), (7,), (70, 71), (1, 1))
"""For specs that compress matrices alone: one of more than 4096 elements, and one of a single element."""


def rate(step: int) -> float:
    """The learning rate falls, so that it matters which one is used."""
    return 0.05 / (1 + step / 40)


@dataclass(frozen=True)
class Setup:
    """What is trained: the parameters' shapes, and SGD's momentum and weight decay."""

    shapes: tuple[tuple[int, ...], ...] = SHAPES
    momentum: float = MOMENTUM
    decay: float = 0.0


def setup(reference: Any) -> Setup:
    momentum, decay = getattr(reference, "MOMENTUM", MOMENTUM), getattr(reference, "DECAY", 0.0)
    return Setup(getattr(reference, "SHAPES", SHAPES), momentum, decay)


def problem(rank: int, number: int, shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Worker `rank`'s loss of parameter `number` is sum(a * (w - b)^2) / 2: (a, b)."""
    draw = torch.Generator().manual_seed(1000 * rank + number)
    return 0.5 + torch.rand(shape, generator=draw, dtype=torch.float64), torch.randn(shape, generator=draw).double()


def start(number: int, shape: tuple[int, ...]) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(7 + number)).double()


class Worker:
    """One worker's share of one parameter, with torch's SGD with momentum and weight decay."""

    def __init__(self, rank: int, number: int, of: Setup) -> None:
        self.rank, self.number, self.momentum, self.decay = rank, number, of.momentum, of.decay
        self.weight, self.rate = start(number, of.shapes[number]), rate(0)
        self.a, self.b = problem(rank, number, of.shapes[number])
        self.buffer: Tensor | None = None

    @property
    def gradient(self) -> Tensor:
        return self.a * (self.weight - self.b)

    def step(self, gradient: Tensor) -> None:
        gradient = gradient + self.decay * self.weight
        self.buffer = gradient if self.buffer is None else self.momentum * self.buffer + gradient
        self.weight = self.weight - self.rate * self.buffer


Team = list[Worker]


@dataclass(frozen=True)
class Given:
    """For one parameter. `matrix(round)` are the mixing weights; `uniforms(iteration, rank)` numbers in [0, 1), one for
    each element, of a worker's encoder, with rank None of the encoder of the sum; `chosen(iteration, block)` the elements
    that all workers draw, one of each block; `drawn(count, mean)` whether a random
    period ends when it is asked for the count-th time; `head_start(period)` how far a staggered period is at the
    start; `shares` the ranges of elements that the workers sum; `normal(count)` what a factor of low rank begins as."""

    matrix: Callable[[int], Tensor]
    uniforms: Callable[[int, int | None], Tensor]
    chosen: Callable[[int, int], list[int]]
    drawn: Callable[[int, float], bool]
    head_start: Callable[[float], float]
    shares: list[tuple[int, int]]
    normal: Callable[[int], Tensor]


Rule = Callable[..., Iterator[None]]


def simulate(
    reference: Any, given: Callable[[int], Given], workers: int, settings: dict[str, Any]
) -> list[list[list[Tensor]]]:
    """The weights by worker, step and parameter. `given(number)` is what is injected for a parameter."""
    made: list[list[list[Tensor]]] = [[[] for _ in range(STEPS)] for _ in range(workers)]
    of = setup(reference)
    for number in range(len(of.shapes)):
        team = [Worker(rank, number, of) for rank in range(workers)]
        running = reference.rule(team, given(number), **settings)
        for step in range(STEPS):
            for worker in team:
                worker.rate = rate(step)
            next(running)
            for rank, worker in enumerate(team):
                made[rank][step].append(worker.weight.clone())
    return made


# --- what most rules do with all workers' values


def average(values: list[Tensor]) -> Tensor:
    """Times 1 / n, not over n: where codes travel as f32, sums lie on ties of it often enough for that to matter."""
    return sum(values[1:], values[0]) * (1 / len(values))


def mixed(matrix: Tensor, values: list[Tensor]) -> list[Tensor]:
    return [sum(float(w) * v for w, v in zip(row, values, strict=True) if w) for row in matrix]


def place(team: Team, weights: list[Tensor]) -> None:
    for worker, weight in zip(team, weights, strict=True):
        worker.weight = weight


def step_with(team: Team, gradient: Tensor) -> None:
    """Everyone steps with the same."""
    for worker in team:
        worker.step(gradient)


def step_alone(team: Team) -> None:
    for worker in team:
        worker.step(worker.gradient)
