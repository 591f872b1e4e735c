"""`--model package.module:factory`: the user's model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxc.errors import BuildError, ModelError
from relaxc.usage import UsageError
from relaxc.users_code import described, found

if TYPE_CHECKING:
    from torch import nn


def model_of(option: str) -> nn.Module:
    """What the factory returns. Raise ModelError (RX0420) with the user's own line where it fails, or where that is no
    model, BuildError (RX0502) without torch."""
    module_name, colon, name = option.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--model takes package.module:factory, but got {option!r}")
    try:
        import torch
    except ImportError as error:
        raise BuildError("RX0502", "torch is not installed", "pip install torch, or compile without --model") from error
    model = _made(option)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            "RX0420", f"{option} gives a {type(model).__name__}, not a torch.nn.Module", "return the model"
        )
    return model


def _made(option: str) -> Any:
    import torch

    try:
        made = found(option)
        is_model = isinstance(made, torch.nn.Module)  # which can be called, too
        return made() if callable(made) and not is_model else made
    except (Exception, SystemExit) as error:
        raise ModelError(
            "RX0420", f"{option} failed: {described(error)}",
            "see that it can be imported and called without arguments",
        ) from error  # fmt: skip
