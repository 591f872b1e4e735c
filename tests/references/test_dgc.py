"""Deep gradient compression, by its update rule (Lin et al. 2018, algorithm 4), clipping per parameter: u = m u + g, v = v + u,
send the largest of v; where sent, u = v = 0."""

from __future__ import annotations

from typing import Any

import pytest
from quadratics import RATE, SHAPES, STEPS, close, interpreted, problem, start

EPOCH, MOMENTUM, CLIP = 12, 0.9, 1.0


def share(step: int) -> float:
    return (0.25, 0.0625, 0.001)[min(step // EPOCH, 2)]


def reference(workers: int) -> list[list[list[Any]]]:
    import torch

    weights = [torch.tensor(start(n)) for n in range(len(SHAPES))]
    velocity = [[torch.zeros_like(w) for w in weights] for _ in range(workers)]
    held = [[torch.zeros_like(w) for w in weights] for _ in range(workers)]
    made = []
    for step in range(STEPS):
        for n, weight in enumerate(weights):
            total = torch.zeros_like(weight)
            for w in range(workers):
                a, b = map(torch.tensor, problem(w, n))
                grad = a * (weight - b)
                if weight.dim() < 2:
                    total += grad
                    continue
                grad = grad * torch.clamp(CLIP / (workers**0.5 * grad.norm()), max=1.0)
                velocity[w][n] = MOMENTUM * velocity[w][n] + grad
                held[w][n] = held[w][n] + velocity[w][n]
                mask = torch.zeros(weight.numel(), dtype=torch.bool)
                mask[held[w][n].flatten().abs().topk(max(1, round(share(step) * weight.numel()))).indices] = True
                mask = mask.reshape(weight.shape)
                total += torch.where(mask, held[w][n], 0.0)
                held[w][n] = torch.where(mask, 0.0, held[w][n])
                velocity[w][n] = torch.where(mask, 0.0, velocity[w][n])
            weights[n] = weight - RATE * total / workers
        made.append([[w.numpy() for w in weights]] * workers)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_dgc(workers: int) -> None:
    text = f"relax gradients for ndim < 2\nrelax with dgc {{ epoch = {EPOCH} }}"
    close(interpreted(text, workers), reference(workers))
