"""SPARTA, by its rule (Beton et al. 2025): everyone steps alone, then the drawn weights are averaged, the others left alone."""

from __future__ import annotations

from typing import Any

import pytest
from quadratics import RATE, SHAPES, STEPS, close, drawn, interpreted, problem, start

from relaxc.resources import folder

BLOCK = 200


def reference(workers: int) -> list[list[list[Any]]]:
    import torch

    weights = [[torch.tensor(start(n)) for n in range(len(SHAPES))] for _ in range(workers)]
    made = []
    for step in range(STEPS):
        for n, shape in enumerate(SHAPES):
            for w in range(workers):
                a, b = map(torch.tensor, problem(w, n))
                weights[w][n] = (weights[w][n] - RATE * a * (weights[w][n] - b)).flatten()
            at = drawn(step, n, weights[0][n].numel(), BLOCK)
            mean = sum(weights[w][n][at] for w in range(workers)) / workers
            for w in range(workers):
                weights[w][n][at] = mean
                weights[w][n] = weights[w][n].reshape(shape)
        made.append([[x.clone().numpy() for x in mine] for mine in weights])
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 5])
def test_sparta(workers: int) -> None:
    text = (folder("specs") / "sparta.relax").read_text()
    close(interpreted(text, workers), reference(workers))
