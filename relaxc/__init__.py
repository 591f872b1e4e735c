"""relaxc: a compiler for relaxed gradient exchange in PyTorch data-parallel training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relaxc.api import compile, load

__version__ = "0.1.0"
__all__ = ["__version__", "compile", "load"]


def __getattr__(name: str) -> Any:
    """`relaxc.compile` and `relaxc.load` on first use: the command line must not pay for importing torch."""
    if name in ("compile", "load"):
        from relaxc import api

        return getattr(api, name)
    raise AttributeError(f"module 'relaxc' has no attribute {name!r}")
