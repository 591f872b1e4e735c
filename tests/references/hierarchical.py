"""Full precision within a machine, 8-bit min-max across (as in Bagua, Gan et al. 2021): each machine's sum is coded,
with what its code lost before, and the mean of all machines' codes is coded once more for the way back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def minmax(x: Tensor) -> Tensor:
    """256 levels between the least and the greatest of each 512 elements; both ends of the scale travel in f32."""

    def code(part: Tensor) -> Tensor:
        low = part.min().float().double()
        unit = ((part.max() - low) / 255).float().double()
        return low + ((part - low) / unit).round().clamp(0, 255) * unit if unit else low + 0 * part

    return torch.cat([code(part) for part in x.reshape(-1).split(512)]).reshape(x.shape)


def rule(team: Any, given: Any, inner: int = 1) -> Iterator[None]:
    """`inner` workers are on each machine."""
    machines = [team[first : first + inner] for first in range(0, len(team), inner)]
    lost = [torch.zeros_like(team[0].weight) for _ in machines]
    while True:
        sums = [total([worker.gradient for worker in machine]) for machine in machines]
        if len(machines) == 1:
            mean = sums[0] * (1 / len(team))
        else:
            wanted = [s + kept for s, kept in zip(sums, lost, strict=True)]
            sent = [minmax(w) for w in wanted]
            lost = [w - s for w, s in zip(wanted, sent, strict=True)]
            mean = minmax(total(sent) * (1 / len(team)))
        for worker in team:
            worker.step(mean)
        yield


def total(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0])
