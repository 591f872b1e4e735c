"""`--model package.module:factory`: the user's model, made to read its parameters."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from relaxc.errors import BuildError, ModelError
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.wire.parameters import Parameter


def parameters_of(option: str) -> tuple[Parameter, ...]:
    """The parameters of what the factory returns. Raise ModelError (RX04) with the user's own line where it fails."""
    module_name, colon, name = option.partition(":")
    if not colon or not module_name or not name:
        raise UsageError(f"--model takes package.module:factory, but got {option!r}")
    try:
        import torch
    except ImportError as error:
        raise BuildError("RX0502", "torch is not installed", "pip install torch, or compile without --model") from error
    from relaxc.attach.parameters import read_parameters

    model = _made(module_name, name)
    if not isinstance(model, torch.nn.Module):
        raise ModelError(
            "RX0420", f"{option} gives a {type(model).__name__}, not a torch.nn.Module", "return the model"
        )
    return read_parameters(model).parameters


def _made(module_name: str, name: str) -> Any:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: the user's module is beside the spec
    try:
        found = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        return found() if callable(found) else found
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise ModelError(
            "RX0420", f"{module_name}:{name} failed: {type(error).__name__}: {error} ({last.filename}:{last.lineno})",
            "see that it can be imported and called without arguments",
        ) from error  # fmt: skip
