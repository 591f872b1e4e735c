"""Bagua's MinMaxUInt8 on what each worker sums of the bucket, on both legs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references.harness.codes import f32
from references.harness.means import coded_gradients
from references.harness.team import Given, Team
from torch import Tensor


def code(x: Tensor) -> Tensor:
    low, high = f32(x.min()), f32(x.max())
    scale = 255 / (high - low + 1e-7)
    upper = (high * scale).round()
    lower = upper - 255
    level = (x * scale).round().minimum(upper) - lower
    return (level.clamp(0, 255) + lower) / scale


def rule(team: Team, given: Given) -> Iterator[None]:
    def by_share(x: Tensor) -> Tensor:
        flat, out = x.reshape(-1), torch.empty(x.numel(), dtype=x.dtype)
        for first, end in given.shares:
            if end > first:
                out[first:end] = code(flat[first:end])
        return out.reshape(x.shape)

    return coded_gradients(team, by_share)
