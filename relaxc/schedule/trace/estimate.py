"""A clock that nothing has to run for: it goes forward by each operation's arithmetic and bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry


@dataclass(frozen=True, slots=True)
class Rates:
    """Of a device, each second: floating point operations, and bytes read and written. The defaults are round figures
    in the proportion of a processor's, ten operations a byte, and measured nowhere: shares of an iteration follow from
    them, not seconds."""

    operations: float = 1e11
    bytes: float = 1e10


class EstimatingClock(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Each operation takes its arithmetic or its bytes, whichever is longer; views and unwritten memory take none.
    Works on the meta device, in backward too."""

    def __init__(self, rates: Rates) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._rates, self._now = rates, 0.0

    def mark(self) -> float:
        return self._now

    def between(self, start: float, end: float) -> float:
        return end - start

    def running(self) -> AbstractContextManager[Any]:
        return self

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        result = func(*args, **named)
        if not func.is_view and not func.__name__.startswith(("empty", "new_empty")):
            operations, moved = _operations(func, args, named, result), _bytes((args, named, result))
            self._now += max(operations / self._rates.operations, moved / self._rates.bytes)
        return result


def _operations(func: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], result: Any) -> float:
    count: Callable[..., Any] | None = flop_registry.get(func._overloadpacket)  # noqa: SLF001 - its key
    return float(count(*args, **kwargs, out_val=result)) if count is not None else 0.0


def _bytes(values: Any) -> int:
    """Each tensor once; what `expand` repeats is read once."""
    tensors = {id(t): t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)}
    return sum(_elements(t) * t.element_size() for t in tensors.values())


def _elements(tensor: torch.Tensor) -> int:
    kept = [n for n, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride] if tensor.numel() else [0]
    return torch.Size(kept).numel()
