"""Programs within the user's loop: hooks on optimizer.step() and on the model's forward.

Gradients of parameters whose path has no step are hidden from the optimiser, which leaves them alone; the body updates
them.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch._compile import _disable_dynamo

from relaxc.attach.clock import Clock
from relaxc.errors import ExchangeError, ModelError

if TYPE_CHECKING:
    from relaxc.attach.programs import Programs


class ProgramStep:
    """Hooks on one optimiser's step."""

    def __init__(self, programs: Programs, clock: Clock) -> None:
        self._programs, self._clock = programs, clock
        self._hidden: list[tuple[nn.Parameter, torch.Tensor | None]] = []
        self._groups: list[int] | None = None

    def before(self, optimizer: torch.optim.Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        closure = args[1] if len(args) > 1 else kwargs.get("closure")
        changed = None
        if closure is not None:
            changed = ((args[0], _closed(closure), *args[2:]), {k: v for k, v in kwargs.items() if k != "closure"})
        if getattr(optimizer, "grad_scale", None) is not None:
            raise ExchangeError(
                "RX0614", "this optimiser unscales gradients inside its step, where a program can't see them",
                "create it with fused=False",
            )  # fmt: skip
        self._refuse_regrouped([len(group["params"]) for group in optimizer.param_groups])
        with torch.no_grad():
            self._programs.before(self._clock)
        self._hide()
        return changed

    def _refuse_regrouped(self, groups: list[int]) -> None:
        """Programs read settings of the group in which a parameter was at attach."""
        if self._groups is not None and groups != self._groups:
            raise ModelError(
                "RX0418", "the optimizer's parameter groups changed after attach", "detach, change them, attach again"
            )
        self._groups = groups

    def _hide(self) -> None:
        self._hidden = [
            (site.tensors[p.number], site.tensors[p.number].grad)
            for cohort in self._clock.cohorts
            if not cohort.path.steps
            for site in cohort.sites
            for p in site.members
        ]
        for tensor, _grad in self._hidden:
            tensor.grad = None

    def give_back(self) -> None:
        for tensor, grad in self._hidden:
            tensor.grad = grad
        self._hidden = []

    def after(self) -> None:
        self.give_back()
        with torch.no_grad():
            self._programs.after(self._clock)
        self._programs.stepped()


def _closed(closure: Callable[[], Any]) -> Callable[[], Any]:
    """Run the closure now, since the body comes between it and the update; stand in for it once."""
    with torch.enable_grad():
        losses = [closure()]

    def stand_in() -> Any:
        if not losses:
            raise ExchangeError(
                "RX0614", "the optimiser evaluates its closure more than once in a step, as LBFGS does",
                "use an optimiser that needs one gradient a step",
            )  # fmt: skip
        return losses.pop()

    return stand_in


class Asked:
    """Hooks on a module: weights are asked for, so the last iteration must be complete. What it is `for_` tells the
    rest: for a forward (of a part, too) the next iteration begins, and when other weights are loaded it begins anew.
    Copies and pickles of the module carry one that does nothing."""

    def __init__(self, programs: Programs | None = None, for_: str = "reading") -> None:
        self._programs = weakref.ref(programs) if programs is not None else _nobody
        self._for = for_

    def __reduce__(self) -> tuple[type[Asked], tuple[()]]:
        return type(self), ()

    @_disable_dynamo  # a compiled forward must not leave it out; torch.compiler.disable would import the compiler now
    def __call__(self, module: nn.Module, *_: Any) -> None:
        programs = self._programs()
        training = torch.is_grad_enabled()
        if programs is None:
            return
        with torch.no_grad():
            if self._for in ("forward", "part"):
                programs.asked(training, whole=self._for == "forward")
            elif self._for == "loading":
                programs.rewind()
            else:
                programs.complete()


class AskedOfPart(Asked):
    """The same for a part of the model whose forward may be called by itself, as Lightning's training_step does. In a
    compiled model only the whole one's forward counts: a hook for each part would cut its graph to pieces."""

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        programs = self._programs()
        if programs is not None and not programs.idle:
            super().__call__(module)


class Left(Asked):
    """At the end of the whole model's forward, where buckets are waited for one by one."""

    @_disable_dynamo
    def __call__(self, module: nn.Module, *_: Any) -> None:
        programs = self._programs()
        if programs is not None and programs.needs is not None:
            programs.needs.leave()


class Read(Asked):
    """Before the forward of a module that reads weights first."""

    def __call__(self, module: nn.Module, *_: Any) -> None:
        if torch.compiler.is_compiling():
            return
        programs = self._programs()
        if programs is not None and programs.needs is not None and not programs.paused:
            with torch.no_grad():
                programs.needs.read(module)


def _nobody() -> None:
    return None
