"""The model's parameters and modules by the names that a plan gives them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import nn

from relaxc.wire.parameters import plain_name

Live = Mapping[str, nn.Parameter]
"""The parameters that are exchanged, in registration order, tied ones once under their first name."""


def live_parameters(model: nn.Module) -> Live:
    return {plain_name(name): tensor for name, tensor in model.named_parameters() if tensor.requires_grad}


def names_by_id(live: Live) -> dict[int, str]:
    return {id(tensor): name for name, tensor in live.items()}


def module_name(name: str) -> str:
    return plain_name(f"{name}.").removesuffix(".")


def compiled_modules(model: nn.Module) -> tuple[str, ...]:
    """Those that torch.compile was told to compile, "" for the whole model."""
    return tuple(dict.fromkeys(module_name(name) for name, module in model.named_modules() if _is_compiled(module)))


def _is_compiled(module: nn.Module) -> bool:
    in_place = module.__dict__.get("_compiled_call_impl") is not None
    return in_place or type(module).__name__ == "OptimizedModule"  # by name: its module is slow to import


def enclosing(name: str) -> Iterator[str]:
    """The modules that a dotted name lies in, innermost first, the whole model last."""
    parts = name.split(".")
    for length in range(len(parts) - 1, -1, -1):
        yield ".".join(parts[:length])


def only_device(tensors: Iterable[torch.Tensor]) -> torch.device | None:
    """The device of all of them, None where they are on several or there are none."""
    devices = {tensor.device for tensor in tensors}
    return devices.pop() if len(devices) == 1 else None
