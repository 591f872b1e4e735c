"""A model that sleeps for as long as it would compute, layer by layer: for more hosts than there are cores."""

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
        ctx.backward_seconds, ctx.weight = backward, weight
        time.sleep(forward)
        return x + 0

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None, None]:
        time.sleep(ctx.backward_seconds)
        return grad, torch.ones_like(ctx.weight), None, None


class Sleeper(nn.Module):
    def __init__(self, elements: int, forward: float, backward: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(elements, 1))
        self.seconds = forward, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = _Layer.apply(x, self.weight, *self.seconds)  # type: ignore[no-untyped-call]
        return out


class StandIn(nn.Module):
    """Layers of so many elements, which together take `forward` and `backward` seconds."""

    def __init__(self, sizes: Sequence[int], forward: float, backward: float) -> None:
        super().__init__()
        count = len(sizes)
        self.layers = nn.Sequential(*(Sleeper(size, forward / count, backward / count) for size in sizes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out
