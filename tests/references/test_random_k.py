"""Random-k with error feedback (Stich et al. 2018), the same elements on all workers: p = g + e, the mean of p where an element
is drawn, e = p elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from quadratics import RATE, SHAPES, STEPS, close, drawn, interpreted, problem, start

from relaxc.resources import folder

BLOCK = 100


def reference(workers: int) -> list[list[list[Any]]]:
    import torch

    weights = [torch.tensor(start(n)) for n in range(len(SHAPES))]
    errors = [[torch.zeros_like(w) for w in weights] for _ in range(workers)]
    made = []
    for step in range(STEPS):
        for number, weight in enumerate(weights):
            mask = torch.ones(weight.numel(), dtype=torch.bool)
            if weight.dim() >= 2:
                mask[:] = False
                mask[drawn(step, number, weight.numel(), BLOCK)] = True
            mask = mask.reshape(weight.shape)
            mean = torch.zeros_like(weight)
            for worker in range(workers):
                a, b = map(torch.tensor, problem(worker, number))
                wanted = a * (weight - b) + errors[worker][number]
                mean += torch.where(mask, wanted, 0.0) / workers
                errors[worker][number] = torch.where(mask, 0.0, wanted)
            weights[number] = weight - RATE * mean
        made.append([[w.numpy() for w in weights]] * workers)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_random_k(workers: int) -> None:
    text = (folder("specs") / "random_k.relax").read_text()
    close(interpreted(text, workers), reference(workers))


def test_all_elements_are_drawn_alike() -> None:
    """By the draws of many iterations, in a whole block and in a short last one."""
    import numpy as np

    iterations, block = 20000, 10
    counts = np.bincount([p for t in range(iterations) for p in drawn(t, 3, 17, block)], minlength=17)
    assert np.abs(counts / iterations - 1 / block).max() < 5 * np.sqrt(0.09 / iterations)
