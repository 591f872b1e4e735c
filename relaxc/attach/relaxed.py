"""A plan at work on a model: what `plan.attach` returns."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from relaxc.attach.anchor import drop_anchor
from relaxc.attach.checkpoint import Checkpoint
from relaxc.attach.drift import check_replicas
from relaxc.attach.engine import Running
from relaxc.attach.failure import Watch
from relaxc.attach.groups import Groups
from relaxc.attach.guards import ForwardGuard, StepGuard
from relaxc.attach.late import HideUnlanded
from relaxc.attach.parameters import ModelParameters
from relaxc.errors import ModelError
from relaxc.manifest import Manifest
from relaxc.schedule.schedule import Schedule

_attached: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""By parameter a weak reference to the plan at work on it. By identity: tensors compare element by element."""


def refuse_attached(tensors: Sequence[nn.Parameter]) -> None:
    if any(tensor in _attached and _attached[tensor]() is not None for tensor in tensors):
        raise ModelError("RX0411", "a plan is attached to this model already", "call detach() on it first")


class Relaxed:
    """Gradients are exchanged as the plan says, and `.grad` is what it says when backward() returns.

    Made by `plan.attach`. `detach()` removes every hook; the gradients stay where they are.
    """

    def __init__(
        self, manifest: Manifest, model: nn.Module, read: ModelParameters, schedule: Schedule, groups: Groups,
        running: Running, optimizers: Sequence[torch.optim.Optimizer], scaler: Any, check_every: int,
    ) -> None:  # fmt: skip
        self._manifest, self._schedule, self._groups = manifest, schedule, groups
        self._read, self._running, self._check_every = read, running, check_every
        self._checkpoint = Checkpoint(manifest, schedule, read.parameters, running)
        self._removable: list[Any] = []
        self._watch = Watch(groups)
        self._engine = running.engine
        if scaler is not None:
            self._engine.set_loss_scale(scaler.get_scale)
        remembers = any(b.delay or b.exchange.feedback != "none" for b in manifest.bodies)
        guard = ForwardGuard(scaled=scaler is not None or not remembers)
        self._removable.append(model.register_forward_pre_hook(guard))
        self._hook_optimizers(model, optimizers)
        self._removable += [_refuse_thawed(name, tensor) for name, tensor in read.frozen if tensor.is_floating_point()]
        self._watch.start()
        self._engine.start(self._watch)
        self._finalizer = weakref.finalize(self, _stop, self._engine, self._watch)
        self._anchor = drop_anchor(model, read.tensors, self)
        _attached.update({tensor: weakref.ref(self) for tensor in read.tensors})

    def _hook_optimizers(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        hide = HideUnlanded(self._engine, self._read.tensors)
        for number, optimizer in enumerate(optimizers):
            guard = StepGuard(self._engine, model, self._read, optimizer, self._schedule.workers == 1)
            self._removable.append(optimizer.register_step_pre_hook(guard.before))
            self._removable.append(optimizer.register_step_pre_hook(hide.before))
            self._removable.append(optimizer.register_step_post_hook(hide.after))
            if number == len(optimizers) - 1 and self._check_every:
                self._removable.append(optimizer.register_step_post_hook(self._after_step))

    def _after_step(self, *_: Any) -> None:
        if self._engine.iterations % self._check_every == 0:
            names = [p.name for p in self._read.parameters]
            try:
                check_replicas(names, self._read.tensors, self._groups, self._engine.iterations)
            except RuntimeError as error:  # of the backend: a worker is lost
                self._watch.on_failure(self._engine.iterations - 1, -1, -1, str(error))

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward() only accumulates into `.grad`; the next backward() outside exchanges the sum."""
        before, self._engine.enabled = self._engine.enabled, False
        try:
            yield
        finally:
            self._engine.enabled = before

    def state_dict(self) -> dict[str, Any]:
        """Flat: plain tensors and numbers, keyed by parameter name and rank (attach/checkpoint.py says which)."""
        return self._checkpoint.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of the same number of workers: the same bits as not stopping. Of another: pass the union of all workers'
        states.

        Raise ExchangeError (RX0606) where `state` is of another plan or model.
        """
        self._checkpoint.load(state)

    def stats(self) -> dict[str, float | int]:
        """Flat scalars. Bytes are this worker's; `*_seconds` are sums since attach: exchange under way, codecs at
        work, and exposed, which is what backward() waited. `staleness` counts iterations."""
        return {
            **self._engine.counters(),
            "iterations": self._engine.iterations,
            "staleness": max((b.delay for b in self._manifest.bodies), default=0),
            "predicted_bytes_per_iteration": self._schedule.sent_bytes,
            "predicted_wire_bytes_per_iteration": self._schedule.wire_bytes,
            "buckets": len(self._schedule.buckets),
            "workers": self._schedule.workers,
        }

    def residual_norms(self) -> dict[str, float]:
        """By parameter, the Euclidean norm of what this worker's encoders have lost and not yet sent."""
        self._engine.drain()
        return {
            p.name: float(sum(t.norm().item() ** 2 for t in (r.worker, r.owner) if t is not None) ** 0.5)
            for p, r in zip(self._read.parameters, self._running.residuals, strict=True)
            if r.worker is not None or r.owner is not None
        }

    def detach(self) -> None:
        """Finish what is under way, remove every hook and leave the process groups. The model trains on alone.

        Where the exchange has failed it says so once more; the hooks are gone all the same.
        """
        if not self._finalizer.alive:
            return
        try:
            self._engine.drain()
        finally:
            self._finalizer()
            self._anchor.held = None
            for removable in self._removable:
                removable.remove()
            for tensor in self._read.tensors:
                if tensor in _attached:
                    del _attached[tensor]


def _stop(engine: Any, watch: Watch) -> None:
    engine.stop()
    watch.stop()


def _refuse_thawed(name: str, tensor: nn.Parameter) -> Any:
    """A parameter that was frozen at attach is not exchanged: its gradient must not pass in silence."""

    def refuse(_tensor: torch.Tensor) -> None:
        raise ModelError(
            "RX0410",
            f"parameter {name} was frozen at attach and has a gradient now",
            "detach and attach again after thawing",
        )

    tensor.requires_grad_(True)
    handle = tensor.register_post_accumulate_grad_hook(refuse)  # type: ignore[no-untyped-call]
    tensor.requires_grad_(False)
    return handle
