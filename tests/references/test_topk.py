"""Top-k with error feedback, by its update rule (Stich et al. 2018): p = g + e, send the k largest of p, e = p - sent."""

from __future__ import annotations

from typing import Any

import pytest
from quadratics import RATE, SHAPES, STEPS, close, interpreted, problem, start

PART = 0.01


def largest(x: Any, part: float) -> Any:
    """`x` with all but the largest share of its magnitudes at zero."""
    import torch

    flat = x.flatten()
    places = flat.abs().topk(max(1, round(part * flat.numel()))).indices
    return torch.zeros_like(flat).index_copy(0, places, flat[places]).reshape(x.shape)


def reference(workers: int, specs: list[float | None]) -> list[list[list[Any]]]:
    """`specs` has for each parameter the share, None for what goes in full."""
    import torch

    weights = [torch.tensor(start(n)) for n in range(len(SHAPES))]
    errors = [[torch.zeros_like(w) for w in weights] for _ in range(workers)]
    made = []
    for _ in range(STEPS):
        for number, weight in enumerate(weights):
            sent = []
            for worker in range(workers):
                a, b = map(torch.tensor, problem(worker, number))
                wanted = a * (weight - b) + errors[worker][number]
                part = specs[number]
                sent.append(wanted if part is None else largest(wanted, part))
                errors[worker][number] = wanted - sent[-1]
            weights[number] = weight - RATE * sum(sent) / workers
        made.append([[w.numpy() for w in weights]] * workers)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_topk(workers: int) -> None:
    from relaxc.resources import folder

    text = (folder("specs") / "topk.relax").read_text()
    close(interpreted(text, workers), reference(workers, [PART, None, PART, PART]))


@pytest.mark.parametrize("count", [1, 9, 1200])
def test_a_count(count: int) -> None:
    text = f'relax gradients for "p0" {{ compress = topk({count}) }}\nrelax gradients'
    close(interpreted(text, 3), reference(3, [count / 1200, None, None, None]))
