"""Iterations in which nothing lands: the optimiser must leave those parameters alone.

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

    def before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        if closure is None:
            self._hide(optimizer)
            return None

        def and_hide() -> Any:  # backward comes within the step, each time that the optimiser calls the closure
            self.after()
            loss = closure()
            self._hide(optimizer)
            return loss

        return ((args[0], and_hide, *args[2:]), {k: v for k, v in kwargs.items() if k != "closure"})

    def _hide(self, optimizer: torch.optim.Optimizer) -> None:
        hidden = self._engine.hidden()
        if not hidden:
            return
        mine = {id(p) for group in optimizer.param_groups for p in group["params"]}
        self._hidden = [(t, t.grad) for t in (self._tensors[p] for p in hidden) if id(t) in mine]
        for tensor, _grad in self._hidden:
            tensor.grad = None

    def after(self) -> None:
        for tensor, grad in self._hidden:
            tensor.grad = grad
        self._hidden = []
