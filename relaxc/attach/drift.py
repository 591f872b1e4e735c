"""Replicas that must be identical: are they? Compared every K steps where attach was asked to."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from relaxc.attach.groups import Groups
from relaxc.errors import ExchangeError

WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprint(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Two sums over the bits of each tensor, modulo 2^64: i64[tensors, 2], on the host."""
    return torch.stack([_fingerprint(t.detach()) for t in tensors]).cpu()


def _fingerprint(tensor: torch.Tensor) -> torch.Tensor:
    words = tensor.contiguous().reshape(-1).view(WORDS[tensor.element_size()]).to(torch.int64)
    places = torch.arange(1, words.numel() + 1, dtype=torch.int64, device=words.device)
    return torch.stack([words.sum(), (words * places).sum()])


def check_replicas(names: Sequence[str], tensors: Sequence[torch.Tensor], groups: Groups, iteration: int) -> None:
    """Raise ExchangeError (RX0605) on every worker, naming the first parameter that differs."""
    mine = fingerprint(tensors)
    theirs = groups.gather_tensors(mine)
    for number, name in enumerate(names):
        for rank, other in enumerate(theirs):
            if not torch.equal(other[number], theirs[0][number]):
                raise ExchangeError(
                    "RX0605",
                    f"replicas differ after iteration {iteration}: rank {rank}'s parameter {name} is not rank 0's",
                    "look for code that changes weights, gradients or the learning rate on some workers only",
                )  # fmt: skip
