"""Codes that keep some elements as they are and nothing of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from references.harness.team import Team, average, step_with
from torch import Tensor


def only(places: Tensor | list[int], x: Tensor) -> Tensor:
    """`x` with zeros at all other places."""
    mask = torch.zeros(x.numel(), dtype=torch.bool)
    mask[places] = True
    return torch.where(mask.reshape(x.shape), x, 0.0)


def largest(part: float, x: Tensor) -> Tensor:
    """Its largest magnitudes: a part below 1 is a share of the elements, from 1 on a count."""
    count = part if part >= 1 else max(1, round(part * x.numel()))
    return only(x.flatten().abs().topk(min(int(count), x.numel())).indices, x)


def remembered_gradients(team: Team, code: Callable[[int, Tensor], Tensor]) -> Iterator[None]:
    """Error feedback (Stich et al. 2018): p = g + e; `code(iteration, p)` is sent; e is what it lost. The mean is exact."""
    iteration, error = 0, [0 * w.weight for w in team]
    while True:
        wanted = [w.gradient + e for w, e in zip(team, error, strict=True)]
        sent = [code(iteration, p) for p in wanted]
        error = [p - q for p, q in zip(wanted, sent, strict=True)]
        step_with(team, average(sent))
        iteration += 1
        yield
