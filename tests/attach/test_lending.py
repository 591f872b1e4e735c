"""Weights that are sent from their own memory: what arrives is what they were, and partners get what they were, too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pool import Pool
from torch import nn

import relaxc
from relaxc.attach import traffic

LENT = "algorithm pair() { step weight += mix(weight, ring) - weight }\nrelax with pair\n"
COPIED = (
    "relax with dpsgd",  # leaves at the beginning: the optimiser steps meanwhile
    "algorithm pair() { step weight += mix(2 * weight, ring) - weight }\nrelax with pair\n",
    "algorithm pair() { step weight += mix(weight, ring, compress = 8bit) - weight }\nrelax with pair\n",
    "algorithm pair() { step weight += delay(mix(weight, ring) - weight, 1) }\nrelax with pair\n",
    "algorithm pair() { weight += mix(weight, ring) - weight step }\nrelax with pair\n",
)
LARGE = 50_000
SHAPES = {"a": (LARGE,), "b": (5,), "c": (300, 200), "d": (7,)}
DTYPES = {"c": torch.float64}
"""Of `a` and `c` messages are the weights' memory; `b` and `d` are together in one that is made."""


def start(rank: int, name: str, t: int) -> torch.Tensor:
    dtype = DTYPES.get(name, torch.float32)
    seed = torch.Generator().manual_seed(1000 * rank + 10 * t + ord(name))
    return torch.randn(SHAPES[name], generator=seed, dtype=dtype)


def mean(all_values: list[torch.Tensor], own: torch.Tensor) -> torch.Tensor:
    """As the kernels add up: with weights of the arithmetic type, in rank order."""
    weight = torch.tensor(1 / len(all_values), dtype=own.dtype)
    total = -torch.zeros_like(own)
    for value in all_values:
        total = total + value * weight
    return own + (total - own)


def average(rank: int, workers: int) -> int:
    model = nn.ParameterDict({n: nn.Parameter(start(rank, n, 0)) for n in SHAPES})
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    relaxed = relaxc.compile(LENT).attach(model, optimizer)
    lent, made = [], traffic.lending_call

    def counted(*arguments: Any) -> Any:
        lent.append(arguments)
        return made(*arguments)

    traffic.lending_call = counted
    for t in range(4):
        with torch.no_grad():
            for name, weight in model.items():
                if t == 2:
                    weight.data = start(rank, name, t)  # memory of its own
                else:
                    weight.copy_(start(rank, name, t))
        sum(weight.sum() for weight in model.values()).backward()
        optimizer.step()
        relaxed.complete()
        for name, weight in model.items():
            wanted = mean([start(r, name, t) for r in range(workers)], start(rank, name, t))
            assert torch.equal(weight, wanted), f"{name} after iteration {t}"
    relaxed.detach()
    traffic.lending_call = made
    return len(lent)


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_what_is_lent_is_averaged_as_what_is_copied(pool: Pool, workers: int) -> None:
    assert pool.run(average, workers) == [2] * workers


def lending(spec: str) -> list[bool]:
    program = relaxc.compile(spec).manifest.bodies[0].program
    assert program is not None
    return [fragment.lends for fragment in program.fragments if fragment.sends is not None]


def test_a_weight_is_lent_that_nothing_writes_before_it_lands() -> None:
    assert lending(LENT) == [True]


@pytest.mark.parametrize("spec", COPIED)
def test_others_are_copied(spec: str) -> None:
    assert not any(lending(spec))
