"""What backward starts from, where the user gives no loss."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from relaxc.errors import ModelError


def loss_of(output: Any) -> torch.Tensor:
    """The output's own `loss`, else the sum of the means of all outputs that need a gradient. Raise ModelError (RX0424)
    where none does."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    if isinstance(own, torch.Tensor) and own.requires_grad:
        return own.sum()
    means = [tensor.mean() for tensor in _tensors(output) if tensor.requires_grad and tensor.is_floating_point()]
    if not means:
        raise ModelError(
            "RX0424", "no output of the model needs a gradient", "return what the loss is made of, or give a loss"
        )
    return torch.stack([mean.float() for mean in means]).sum()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _tensors(part)
    elif isinstance(value, tuple | list):
        for part in value:
            yield from _tensors(part)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from _tensors(getattr(value, field.name))
