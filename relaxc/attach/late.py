"""Iterations in which nothing lands: the optimiser must leave those parameters alone (SEMANTICS decision 6).

After such a backward `.grad` is zeros, so clipping and custom code find a tensor; inside `optimizer.step()` it is None,
which every torch optimiser skips.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


class HideUnlanded:
    """Hooks on the optimisers' steps."""

    def __init__(self, engine: Any, tensors: Sequence[torch.Tensor]) -> None:
        self._engine, self._tensors = engine, tensors
        self._hidden: list[tuple[torch.Tensor, torch.Tensor | None]] = []

    def before(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._hidden = [(t, t.grad) for t in (self._tensors[p] for p in self._engine.hidden()) if id(t) in mine]
        for tensor, _grad in self._hidden:
            tensor.grad = None

    def after(self, *_: Any) -> None:
        for tensor, grad in self._hidden:
            tensor.grad = grad
        self._hidden = []
