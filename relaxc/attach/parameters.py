"""The model's parameters as a plan sees them, and the models that can't be attached to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

import torch
from torch import nn

from relaxc.errors import ModelError
from relaxc.wire.parameters import Parameter, plain_name

DTYPES = {torch.float32: "f32", torch.float16: "f16", torch.bfloat16: "bf16", torch.float64: "f64"}


@dataclass(frozen=True)
class ModelParameters:
    """`tensors[i]` is `parameters[i]`. `frozen` are those without requires_grad at attach: they are not exchanged. All
    are on `device`."""

    parameters: tuple[Parameter, ...]
    tensors: tuple[nn.Parameter, ...]
    frozen: tuple[tuple[str, nn.Parameter], ...]

    @property
    def device(self) -> torch.device:
        return self.tensors[0].device


def read_parameters(model: nn.Module) -> ModelParameters:
    """Raise ModelError (RX04) where the model is one that a plan can't serve, with what to do about it."""
    _refuse_wrapped(model)
    named = [(plain_name(name), tensor) for name, tensor in model.named_parameters()]
    for name, tensor in named:
        _refuse_place(name, tensor)
        if tensor.requires_grad:
            _refuse_kind(name, tensor)
    _refuse_apart(named)
    _refuse_sparse(model)
    live = [(name, tensor) for name, tensor in named if tensor.requires_grad]
    if not live:
        raise ModelError(
            "RX0402", "the model has no parameter that requires a gradient", "attach before freezing it all"
        )
    parameters = tuple(
        Parameter(number, name, tuple(tensor.shape), DTYPES[tensor.dtype]) for number, (name, tensor) in enumerate(live)
    )
    frozen = tuple((name, tensor) for name, tensor in named if not tensor.requires_grad)
    return ModelParameters(parameters, tuple(tensor for _, tensor in live), frozen)


DEVICES = ("cpu", "cuda")


def _refuse_wrapped(model: nn.Module) -> None:
    for name, module in model.named_modules():
        wrapper = _wrapper(module)
        if wrapper:
            where = f"module {name}" if name else "the model"
            raise ModelError(
                "RX0403", f"{where} is wrapped by {wrapper}, which exchanges gradients itself",
                BARE,
            )  # fmt: skip


BARE = "don't wrap it: attach the plan to the bare model, and call the bare model"


def refuse_under_ddp() -> NoReturn:
    raise ModelError("RX0403", "DistributedDataParallel calls this model, so each gradient is exchanged twice", BARE)


def _wrapper(module: nn.Module) -> str | None:
    return next((c.__name__ for c in type(module).__mro__ if c.__module__.startswith(WRAPPERS)), None)


WRAPPERS = ("torch.nn.parallel.", "torch.distributed.fsdp", "torch.distributed._composable")


def _refuse_place(name: str, tensor: torch.Tensor) -> None:
    if isinstance(tensor, nn.parameter.UninitializedParameter):
        raise ModelError("RX0404", f"parameter {name} has no shape yet", "run one forward pass before attach")
    if type(tensor).__name__ == "DTensor" or type(tensor.data).__name__ == "DTensor":
        raise ModelError(
            "RX0403", f"parameter {name} is a DTensor", "relaxc exchanges whole tensors: use a model without it"
        )
    if tensor.is_meta:
        raise ModelError(
            "RX0404", f"parameter {name} has no data yet", 'give it some before attach: model.to_empty(device="cpu")'
        )
    if tensor.device.type not in DEVICES:
        raise ModelError(
            "RX0405", f"parameter {name} is on {tensor.device}, for which there are no kernels",
            "train on a CPU or on NVIDIA's GPUs",
        )  # fmt: skip


def _refuse_apart(named: Sequence[tuple[str, torch.Tensor]]) -> None:
    for name, tensor in named[1:]:
        first, device = named[0]
        if tensor.device != device.device:
            raise ModelError(
                "RX0405", f"parameter {first} is on {device.device} and {name} on {tensor.device}",
                "keep the model of one worker on one device",
            )  # fmt: skip


def _refuse_kind(name: str, tensor: torch.Tensor) -> None:
    if tensor.layout != torch.strided:
        raise ModelError("RX0406", f"parameter {name} is sparse", "use a dense parameter")
    if tensor.dtype not in DTYPES:
        raise ModelError(
            "RX0407",
            f"parameter {name} is {str(tensor.dtype).removeprefix('torch.')}",
            f"use {', '.join(DTYPES.values())}",
        )
    if not dense(tensor):
        raise ModelError("RX0408", f"parameter {name} overlaps itself or has gaps in memory", "make it contiguous()")


def _refuse_sparse(model: nn.Module) -> None:
    for name, module in model.named_modules():
        if getattr(module, "sparse", False) is True and isinstance(module, (nn.Embedding, nn.EmbeddingBag)):
            raise ModelError("RX0406", f"module {name} makes sparse gradients", "create it with sparse=False")


def dense(tensor: torch.Tensor) -> bool:
    """Whether the elements fill a stretch of memory, in whatever order (channels_last is dense)."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(tensor.stride(), tensor.shape, strict=True) if n != 1):
        if stride != expected and tensor.numel():
            return False
        expected *= size
    return True
