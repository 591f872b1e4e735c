"""DeMo (Peng et al. 2024): e = decay e + lr g; q the largest cosine coefficients of each block of side x side elements;
e = e - inverse(q); w = w - lr (sign(inverse(sum of q)) + weight decay w). Vectors go in full, with the optimiser."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from references import allreduce
from references.harness.kept import largest
from references.harness.team import MATRICES, Given, Team, place
from torch import Tensor

SHAPES = MATRICES
MOMENTUM = 0
DECAY = 0.01


def rule(team: Team, given: Given, decay: float = 0.999, side: int = 64, keep: int = 32) -> Iterator[None]:
    if team[0].weight.ndim < 2:
        return allreduce.rule(team, given)
    return fast_parts(team, decay, side, keep)


def fast_parts(team: Team, decay: float, side: int, keep: int) -> Iterator[None]:
    held = [0 * w.weight for w in team]
    while True:
        held = [decay * e + w.rate * w.gradient for e, w in zip(held, team, strict=True)]
        sent = [fastest(e, side, keep) for e in held]
        held = [e - q for e, q in zip(held, sent, strict=True)]
        way = torch.sign(sum(sent[1:], sent[0]))
        place(team, [w.weight - w.rate * (way + w.decay * w.weight) for w in team])
        yield


def fastest(x: Tensor, side: int, keep: int) -> Tensor:
    """Block by block. A short last one is its whole rows, and a row of what is left."""
    return torch.cat([of_block(block, side, keep) for block in x.flatten().split(side**2)]).reshape(x.shape)


def of_block(block: Tensor, side: int, keep: int) -> Tensor:
    rows = block.numel() // side
    cut = [block[: rows * side].reshape(rows, side), block[rows * side :].reshape(1, -1)]
    parts = [part for part in cut if part.numel()]
    ends = [(cosines(part.shape[0]), cosines(part.shape[1])) for part in parts]
    flat = torch.cat([(c @ part @ r.T).flatten() for part, (c, r) in zip(parts, ends, strict=True)])
    kept = largest(keep, flat).split([part.numel() for part in parts])
    back = zip(kept, parts, ends, strict=True)
    return torch.cat([(c.T @ k.reshape(part.shape) @ r).flatten() for k, part, (c, r) in back])


def cosines(length: int) -> Tensor:
    """The orthonormal transform, row k for coefficient k."""
    k, j = torch.arange(length, dtype=torch.float64)[:, None], torch.arange(length, dtype=torch.float64)
    made = torch.cos(math.pi * (2 * j + 1) * k / (2 * length)) * math.sqrt(2 / length)
    made[0] /= math.sqrt(2)
    return torch.where(made.abs() < 1e-14, 0.0, made)  # of a quarter of a turn: signs are taken of what is made of it
