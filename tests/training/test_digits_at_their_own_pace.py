"""Every asynchronous spec trains: real digits, workers of different speeds. They are simulated, since what real ones reach in a
given number of iterations depends on how fast an iteration is; attach/test_async_replay.py says that real ones do the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.asynchronous import Workers
from relaxc.program.flights import Prompt
from relaxc.program.ir import Program
from relaxc.resources import folder
from relaxc.wire.parameters import Parameter

SPECS = ("adpsgd", "async_average", "async_bytegrad", "swarm", "swarm_8bit")
SPEEDS = (0.8, 1.0, 1.25)
ITERATIONS, RATE, MOMENTUM = 250, 0.02, 0.9
HIDDEN = 96
PARAMETERS = [Parameter(n, name, shape, "f32") for n, (name, shape) in enumerate(
    {"0.weight": (HIDDEN, 64), "0.bias": (HIDDEN,), "2.weight": (10, HIDDEN), "2.bias": (10,)}.items())]  # fmt: skip
SHORT = {"swarm_8bit": "relax with swarm_8bit { period = geometric(2) }"}
"""Its own period is for data that is not dealt out by class."""
BAR = 0.85
"""The average of workers that exchange nothing reaches 0.71: classes are dealt out."""


class Descent:
    """SGD with momentum."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], Any] = {}

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        key = worker, parameter.number
        self.held[key] = MOMENTUM * self.held.get(key, 0) + grad
        return (weight - RATE * self.held[key]).astype(weight.dtype)

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": RATE, "momentum": MOMENTUM}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise AssertionError(name)


def program_of(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def trained(program: Program) -> float:
    """Held-out accuracy of the average, as tests/training/test_digits.py has it of real workers."""
    import torch
    from sklearn.datasets import load_digits
    from torch.nn import functional

    data = load_digits()
    images, labels = torch.tensor(data.data, dtype=torch.float32) / 16, torch.tensor(data.target)
    held_out = torch.arange(len(labels)) % 5 == 0
    shares = [(~held_out & (labels % len(SPEEDS) == w)).nonzero().flatten() for w in range(len(SPEEDS))]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, 10))
    tensors = list(model.parameters())

    def take(weights: list[Any]) -> None:
        for tensor, weight in zip(tensors, weights, strict=True):
            tensor.data.copy_(torch.from_numpy(np.asarray(weight)).view_as(tensor))

    first = [t.detach().numpy().ravel().copy() for t in tensors]
    world = Workers(program, PARAMETERS, len(SPEEDS), Prompt(late=2), 0, first, Descent())
    draws = [torch.Generator().manual_seed(w) for w in range(len(SPEEDS))]
    for w in turns():
        take(world.weights(w))
        batch = shares[w][torch.randint(len(shares[w]), (32,), generator=draws[w])]
        made = torch.autograd.grad(functional.cross_entropy(model(images[batch]), labels[batch]), tensors)
        world.advance(w, [g.numpy().ravel() for g in made])
    take([np.mean([world.weights(w)[n] for w in range(len(SPEEDS))], axis=0) for n in range(len(tensors))])
    with torch.no_grad():
        return float((model(images[held_out]).argmax(1) == labels[held_out]).float().mean())


def turns() -> list[int]:
    """Whose iteration ends next, until the fastest has had all of its own."""
    ends = [(speed * n, w) for w, speed in enumerate(SPEEDS) for n in range(1, ITERATIONS + 1)]
    return [w for end, w in sorted(ends) if end <= ITERATIONS * min(SPEEDS)]


@pytest.mark.parametrize("name", SPECS)
def test_an_asynchronous_spec_trains(name: str) -> None:
    shipped = (folder("specs") / f"{name}.relax").read_text()
    assert trained(program_of(SHORT.get(name, shipped))) > BAR


def test_the_bar_is_missed_without_an_exchange_and_with_a_wrong_one() -> None:
    assert trained(program_of(NEVER)) < 0.75
    assert trained(program_of(APART)) < 0.75


NEVER = "algorithm never() { step  every 1000 { weight += delay(mix(weight, random_pairs) - weight, async) } }\nrelax with never"
APART = "algorithm apart() { step  weight -= 0.5 * delay(mix(weight, random_pairs) - weight, async) }\nrelax with apart"
