"""relaxc: a compiler for relaxed exchange in PyTorch data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxc.api import compile, load
    from relaxc.attach.plan import Plan
    from relaxc.attach.rejoin import Rejoin, rejoining
    from relaxc.attach.relaxed import Relaxed

__version__ = "0.1.0"
__all__ = ["Plan", "Rejoin", "Relaxed", "__version__", "compile", "load", "rejoining"]

_HOMES = {
    "compile": "api", "load": "api", "Plan": "attach.plan", "Relaxed": "attach.relaxed", "Rejoin": "attach.rejoin",
    "rejoining": "attach.rejoin",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """On first use: the command line must not pay for importing torch."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"relaxc.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'relaxc' has no attribute {name!r}")
