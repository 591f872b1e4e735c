"""PowerSGD (Vogels et al. 2019, algorithms 1 and 2), rank 4, with one step of the power method from where the last one
ended: P = mean(M Q), orthogonalised column by column; Q = mean(M' P); everyone applies P Q', and remembers M - P Q'.

Orthogonalised by Gram and Schmidt, as in the authors' code. Vectors are averaged in full.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

RANK = 4


def average(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0]) / len(values)


def orthogonalised(matrix: Tensor) -> Tensor:
    columns: list[Tensor] = []
    for column in matrix.T:
        for other in columns * 2:  # twice is enough
            column = column - (other @ column) * other  # noqa: PLW2901
        columns.append(column / column.norm())
    return torch.stack(columns, 1)


def rule(team: Any, given: Any) -> Iterator[None]:
    """`given.normal(n)` are the n numbers that Q begins with, by rows."""
    shape = team[0].weight.shape
    if len(shape) < 2:
        while True:
            mean = average([w.gradient for w in team])
            for worker in team:
                worker.step(mean)
            yield
    rows, columns = shape[0], shape[1:].numel()
    rank = min(RANK, rows, columns)
    q = given.normal(columns * rank).view(columns, rank)
    lost = [torch.zeros(rows, columns, dtype=torch.float64) for _ in team]
    while True:
        wanted = [w.gradient.reshape(rows, columns) + e for w, e in zip(team, lost, strict=True)]
        p = orthogonalised(average([m @ q for m in wanted]))
        q = average([m.T @ p for m in wanted])
        lost = [m - p @ q.T for m in wanted]
        for worker in team:
            worker.step((p @ q.T).view(shape))
        yield
