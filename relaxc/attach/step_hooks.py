"""The hooks on one optimiser's step, once a step.

torch wraps `step` of each class: where a subclass's step calls its base's, hooks run for both, one within the other.
And where a step raises, what comes after it never runs: then the next step takes back what came before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

import torch

Before = Callable[[torch.optim.Optimizer, tuple[Any, ...], dict[str, Any]], Any]


class StepHooks:
    """`befores` may each give new arguments to the step; `undo` take back what `befores` have hidden."""

    def __init__(
        self, befores: Sequence[Before], afters: Sequence[Callable[[], None]], undo: Sequence[Callable[[], None]]
    ) -> None:
        self._befores, self._afters, self._undo = befores, afters, undo
        self._step: FrameType | None = None
        self._inner = 0

    def before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if self._within():
            self._inner += 1
            return None
        if self._step is not None:
            self._each(self._undo)
        self._step, self._inner = sys._getframe(1), 0  # noqa: SLF001 - of torch's wrapper, which calls the hooks
        changed = None
        for hook in self._befores:
            given = hook(optimizer, args, kwargs)
            if given is not None:
                args, kwargs = changed = given
        return changed

    def after(self, *_: Any) -> None:
        if self._inner:
            self._inner -= 1
            return
        self._step = None
        self._each(self._afters)

    def _within(self) -> bool:
        """Whether the step that was begun is still running, further out."""
        frame = sys._getframe(2) if self._step is not None else None  # noqa: SLF001
        while frame is not None:
            if frame is self._step:
                return True
            frame = frame.f_back
        return False

    def _each(self, hooks: Sequence[Callable[[], None]]) -> None:
        for hook in hooks:
            hook()
