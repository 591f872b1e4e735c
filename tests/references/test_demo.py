"""DeMo, by its update rule (Peng et al. 2024): e = 0.999 e + lr g; q the 32 largest cosine coefficients of each block of 64 x 64;
e = e - inverse(q); w = w - lr (sign(inverse(sum of q)) + decay w)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from quadratics import DECAY, RATE, SHAPES, STEPS, close, interpreted, problem, start

from relaxc.resources import folder

SIDE, KEEP, HOLD = 64, 32, 0.999


def matrix(length: int) -> Any:
    """The orthonormal cosine transform."""
    import torch

    k, j = torch.arange(length, dtype=torch.float64)[:, None], torch.arange(length, dtype=torch.float64)
    made = torch.cos(math.pi * (2 * j + 1) * k / (2 * length)) * math.sqrt(2 / length)
    made[0] /= math.sqrt(2)
    made[made.abs() < 1e-14] = 0  # the cosine of a quarter of a turn: DeMo takes signs of what is made of it
    return made


def kept(x: Any) -> Any:
    """What a receiver makes of the code of `x`: block by block, a short last one as whole rows and what is left."""
    import torch

    out = []
    for block in x.flatten().split(SIDE**2):
        rows = block.numel() // SIDE
        parts = [block[: rows * SIDE].reshape(rows, SIDE), block[rows * SIDE :].reshape(1, -1)]
        parts = [p for p in parts if p.numel()]
        ends = [(matrix(p.shape[0]), matrix(p.shape[1])) for p in parts]
        flat = torch.cat([(c @ p @ r.T).flatten() for p, (c, r) in zip(parts, ends, strict=True)])
        places = flat.abs().topk(min(KEEP, flat.numel())).indices
        flat = torch.zeros_like(flat).index_copy(0, places, flat[places])
        back = flat.split([p.numel() for p in parts])
        out += [(c.T @ f.reshape(p.shape) @ r).flatten() for f, p, (c, r) in zip(back, parts, ends, strict=True)]
    return torch.cat(out).reshape(x.shape)


def reference(workers: int) -> list[list[list[Any]]]:
    import torch

    weights = [torch.tensor(start(n)) for n in range(len(SHAPES))]
    held = [[torch.zeros_like(w) for w in weights] for _ in range(workers)]
    made = []
    for _ in range(STEPS):
        for n, weight in enumerate(weights):
            total = torch.zeros_like(weight)
            for w in range(workers):
                a, b = map(torch.tensor, problem(w, n))
                grad = a * (weight - b)
                if weight.dim() < 2:
                    total += grad / workers
                    continue
                held[w][n] = HOLD * held[w][n] + RATE * grad
                sent = kept(held[w][n])
                held[w][n] = held[w][n] - sent
                total += sent
            change = total if weight.dim() < 2 else torch.sign(total) + DECAY * weight
            weights[n] = weight - RATE * change
        made.append([[w.numpy() for w in weights]] * workers)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_demo(workers: int) -> None:
    text = (folder("specs") / "demo.relax").read_text()
    close(interpreted(text, workers), reference(workers))
