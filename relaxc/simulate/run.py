"""One training of virtual workers: its loss while it goes on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from relaxc.program.asynchronous import Workers
from relaxc.program.flights import Prompt
from relaxc.program.functions import Array
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program, exchanges
from relaxc.program.launched import launched_of
from relaxc.simulate.descent import Descent
from relaxc.simulate.task import Loaded
from relaxc.simulate.together import Together, in_step

LOOKS = 60
"""How often the loss is taken, about."""
SLOWEST, FASTEST, UNSTEADY = 1.3, 0.7, 0.1
"""Of workers at their own pace: how long their iterations take, and by how much that varies, in the mean's."""

Progress = Callable[[int], None]
"""Told how many iterations are done."""


@dataclass(frozen=True)
class Look:
    """After `iterations`: the loss of the mean of all workers' weights, and how far from it a worker is, as a root mean
    square over workers and elements."""

    iterations: int
    loss: float
    apart: float


@dataclass(frozen=True)
class Training:
    looks: tuple[Look, ...]

    @property
    def diverged(self) -> bool:
        return not math.isfinite(self.looks[-1].loss)


def train(
    program: Program, task: Loaded, workers: int, iterations: int, seed: int, rule: Descent, inner: int = 1,
    progress: Progress = lambda done: None,
) -> Training:  # fmt: skip
    """Raise ModelError (RX0450, RX0451, RX0452). It ends early where the loss is no longer finite."""
    if in_step(program):
        rounds = _together(program, task, workers, seed, rule, inner)
    elif _all_asynchronous(program):
        rounds = _at_their_own_pace(program, task, workers, iterations, seed, rule)
    else:
        rounds = _in_step_beside_launches(program, task, workers, seed, rule, inner)
    every = max(1, iterations // LOOKS)
    looks = [_look(task, 0, [np.tile(start, (workers, 1)) for start in task.starts])]
    for done in range(1, iterations + 1):
        weights = next(rounds)
        progress(done)
        if done % every == 0 or done == iterations:
            looks.append(_look(task, done, weights))
            if not math.isfinite(looks[-1].loss):
                break
    return Training(tuple(looks))


def _look(task: Loaded, done: int, weights: list[Array]) -> Look:
    with np.errstate(all="ignore"):
        means = [rows.mean(axis=0, dtype=np.float64) for rows in weights]
        square = sum(float(((rows - mean) ** 2).sum()) for rows, mean in zip(weights, means, strict=True))
        elements = sum(rows.size for rows in weights)
        held = [mean.astype(rows.dtype) for mean, rows in zip(means, weights, strict=True)]
        return Look(done, task.loss(held), math.sqrt(square / max(1, elements)))


def _together(
    program: Program, task: Loaded, workers: int, seed: int, rule: Descent, inner: int
) -> Iterator[list[Array]]:
    """The weights of all after each iteration."""
    world = Together(program, task.parameters, workers, seed, task.starts, rule, inner)
    while True:
        with np.errstate(all="ignore"):
            world.advance(task.gradients(world.iteration, [world.rows(p.number) for p in task.parameters]))
        yield [world.rows(p.number) for p in task.parameters]


def _in_step_beside_launches(
    program: Program, task: Loaded, workers: int, seed: int, rule: Descent, inner: int
) -> Iterator[list[Array]]:
    """What is launched has arrived in the next iteration."""
    world = Interpreter(program, task.parameters, workers, seed, task.starts, rule, inner=inner, arrivals=Prompt())
    while True:
        with np.errstate(all="ignore"):
            world.iterate([task.gradient(w, world.iteration, own) for w, own in enumerate(world.weights)])
        yield [np.stack(rows) for rows in zip(*world.weights, strict=True)]


def _at_their_own_pace(
    program: Program, task: Loaded, workers: int, iterations: int, seed: int, rule: Descent
) -> Iterator[list[Array]]:
    """Each time all together have done an iteration's work. What all have launched lands in a worker's next iteration
    but one."""
    world = Workers(program, task.parameters, workers, Prompt(late=2), seed, task.starts, rule)
    for turn, worker in enumerate(turns(workers, iterations, seed), 1):
        with np.errstate(all="ignore"):
            world.advance(worker, task.gradient(worker, world.iterations(worker), world.weights(worker)))
        if turn % workers == 0:
            yield [np.stack(rows) for rows in zip(*(world.weights(w) for w in range(workers)), strict=True)]


def turns(workers: int, iterations: int, seed: int) -> list[int]:
    """Whose iteration ends next, until each has had as many."""
    draw = np.random.default_rng((seed, 4))
    speed = np.linspace(FASTEST, SLOWEST, workers) if workers > 1 else np.ones(1)
    took = speed[:, None] * draw.uniform(1 - UNSTEADY, 1 + UNSTEADY, (workers, iterations))
    order = np.argsort(np.cumsum(took, axis=1), axis=None, kind="stable")
    return [int(place // iterations) for place in order]


def _all_asynchronous(program: Program) -> bool:
    bodies = program.bodies
    return all(e.place in launched_of(b.statements).exchanges for b in bodies for e in exchanges(b.statements))
