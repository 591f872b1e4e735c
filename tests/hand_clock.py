"""A clock that models under test move by hand, so that a trace's times have closed forms."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from torch import nn


class HandClock:
    now = 0.0

    def mark(self) -> float:
        return self.now

    def between(self, start: float, end: float) -> float:
        return end - start

    def running(self) -> nullcontext[None]:
        return nullcontext()


CLOCK = HandClock()
"""The one that `takes` moves."""


class _Takes(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, forward, backward):
        ctx.save_for_backward(x, weight)
        ctx.backward = backward
        result = x * weight
        CLOCK.now += forward
        return result

    @staticmethod
    def backward(ctx, gradient):
        CLOCK.now += ctx.backward
        x, weight = ctx.saved_tensors
        return gradient * weight, (gradient * x).sum(), None, None


@torch.fx.wrap
def takes(x: torch.Tensor, weight: torch.Tensor, forward: float, backward: float) -> torch.Tensor:
    """x * weight, which takes these seconds."""
    return _Takes.apply(x, weight, forward, backward)


class Takes(nn.Module):
    def __init__(self, forward: float, backward: float, weight: nn.Parameter | None = None) -> None:
        super().__init__()
        self.weight = weight if weight is not None else nn.Parameter(torch.tensor(1.5))
        self.seconds = forward, backward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return takes(x, self.weight, *self.seconds)
