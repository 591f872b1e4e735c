"""What a training loop can do to a plan without noticing: each is refused, not passed over in silence."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch._compile import _disable_dynamo
from torch.nn.parallel import DistributedDataParallel

from relaxc.attach.parameters import ModelParameters, refuse_under_ddp
from relaxc.errors import ExchangeError, ModelError


class StepGuard:
    """Before each step of one optimiser: were the gradients that it is about to use exchanged?"""

    def __init__(
        self, engine: Any, model: nn.Module, read: ModelParameters, optimizer: torch.optim.Optimizer, alone: bool
    ) -> None:
        self._engine, self._model, self._alone = engine, model, alone
        self._planned = {id(t) for t in read.tensors}
        self._known = self._planned | {id(t) for _, t in read.frozen} | {id(p) for p in _parameters(optimizer)}
        self._count = len(_parameters(optimizer))
        self._iterations = self._earlier = engine.iterations

    def before(self, optimizer: torch.optim.Optimizer, arguments: Sequence[Any] = (), named: Any = None) -> None:
        """Raise ModelError (RX0409, RX0413) or ExchangeError (RX0613)."""
        self._refuse_lost()
        if len(_parameters(optimizer)) != self._count:
            self._refuse_added(optimizer)
        closure = any(a is not None for a in arguments[1:]) or bool(named)  # the first is the optimiser itself
        if not closure:  # a closure runs backward inside the step
            self._refuse_unexchanged(optimizer)
        self._earlier, self._iterations = self._iterations, self._engine.iterations

    def undo(self) -> None:
        """The step did not take place: it may be tried again with the same gradients."""
        self._iterations = self._earlier

    def _refuse_lost(self) -> None:
        name = self._engine.lost()
        if name:
            raise ModelError(
                "RX0409",
                f"parameter {name} was converted after attach, so its gradients were not exchanged",
                "convert the model (double(), half(), to()) before attach",
            )

    def _refuse_added(self, optimizer: torch.optim.Optimizer) -> None:
        names = {id(p): name for name, p in self._model.named_parameters()}
        for parameter in _parameters(optimizer):
            if id(parameter) not in self._known and id(parameter) in names:
                raise ModelError(
                    "RX0413",
                    f"parameter {names[id(parameter)]} was added after attach, so its gradients are not exchanged",
                    "detach, change the model, then attach again",
                )
        self._count = len(_parameters(optimizer))

    def _refuse_unexchanged(self, optimizer: torch.optim.Optimizer) -> None:
        if self._alone or self._engine.iterations != self._iterations:
            return
        planned = (p for p in _parameters(optimizer) if id(p) in self._planned)
        mine = [p.grad for p in planned if p.grad is not None]
        if any(bool(grad.any()) for grad in mine):  # zeros, as zero_grad leaves them, are no gradients
            raise ExchangeError(
                "RX0613",
                "optimizer.step() on gradients that were not exchanged: since the last step no backward() ran outside "
                "no_sync()",
                "call backward() on the loss, for the last micro-batch outside no_sync(); autograd.grad is not seen",
            )


def _parameters(optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


class ForwardGuard:
    """At each forward: is DistributedDataParallel at work on the model too, is a CUDA graph captured? At the first one
    under fp16 autocast, where `scaled` is false: residuals of scaled gradients need the scale, said once.

    A class, since a model that carries it must still pickle.
    """

    def __init__(self, scaled: bool) -> None:
        self._said = scaled

    def __call__(self, module: nn.Module, _inputs: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if DistributedDataParallel._active_ddp_module is not None:  # noqa: SLF001 - no public way to it
            refuse_under_ddp()
        if torch.is_grad_enabled() and _captured():
            raise ExchangeError(
                "RX0631", "a step is captured in a CUDA graph, in whose replay no hook runs and nothing is exchanged",
                "train without a graph, or detach() first",
            )  # fmt: skip
        if not self._said:
            self._look_for_autocast(module)

    def _look_for_autocast(self, module: nn.Module) -> None:
        kind = next((p.device.type for p in module.parameters()), "cpu")
        if torch.is_autocast_enabled(kind) and torch.get_autocast_dtype(kind) == torch.float16:
            self._said = True
            warnings.warn(
                "fp16 autocast with a plan that keeps residuals or delays: pass attach(..., scaler=scaler), so that "
                "they follow the loss scale",
                stacklevel=2,
            )


def _captured() -> bool:
    """A build of torch without CUDA can't be asked."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]


class BeforeForward:
    """At each forward that an exchanging backward will follow: within join(), the others are told. Copies and pickles
    of the model carry one that does nothing."""

    def __init__(self, engine: Any = None, join: Any = None) -> None:
        self._engine, self._join = engine, join

    def __reduce__(self) -> tuple[type[BeforeForward], tuple[()]]:
        return BeforeForward, ()

    def __call__(self, module: nn.Module, _inputs: Any) -> None:
        if self._join is not None and self._join.active:
            self._tell(torch.is_grad_enabled())

    @_disable_dynamo  # a compiled forward must not leave it out
    def _tell(self, training: bool) -> None:
        if training and self._engine.enabled:
            self._join.before_backward()
