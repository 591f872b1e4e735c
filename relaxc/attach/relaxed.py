"""A plan at work on a model: what `plan.attach` returns."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from relaxc.attach.anchor import drop_anchor
from relaxc.attach.attached import Attached
from relaxc.attach.checkpoint import Checkpoint
from relaxc.attach.consensus import Consensus
from relaxc.attach.drift import check_replicas
from relaxc.attach.failure import Watch
from relaxc.attach.guards import BeforeForward, ForwardGuard, StepGuard
from relaxc.attach.joining import Join
from relaxc.attach.late import HideUnlanded
from relaxc.attach.needs import needs_of
from relaxc.attach.profiling import profiled
from relaxc.attach.program_state import ProgramState
from relaxc.attach.programs import Programs
from relaxc.attach.recording import Recorder
from relaxc.attach.reports import residual_norms, stats_of
from relaxc.attach.step_hooks import StepHooks
from relaxc.attach.stepping import Asked, AskedOfPart, Left, ProgramStep, Read
from relaxc.errors import ExchangeError, ModelError, RelaxError

_attached: WeakIdKeyDictionary = WeakIdKeyDictionary()
"""By parameter a weak reference to the plan at work on it. By identity: tensors compare element by element."""


def refuse_attached(tensors: Sequence[nn.Parameter]) -> None:
    if any(tensor in _attached and _attached[tensor]() is not None for tensor in tensors):
        raise ModelError("RX0411", "a plan is attached to this model already", "call detach() on it first")


class Relaxed:
    """A plan at work. `.grad` is what it says when backward() returns, weights are when they are next asked for.

    Made by `plan.attach`. Buffers, such as BatchNorm's running statistics, are each worker's own while training, and
    averaged within `consensus()`.
    """

    def __init__(
        self, attached: Attached, optimizers: Sequence[torch.optim.Optimizer], scaler: Any, check_every: int
    ) -> None:
        self._attached, self._programs, self._watch = attached, attached.programs, attached.watch
        self._manifest, self._schedule, self._groups = attached.manifest, attached.schedule, attached.groups
        self._read, self._running, self._check_every = attached.read, attached.running, check_every
        self._engine, self._optimizers = attached.running.engine, tuple(optimizers)
        self._compared = [p.number for p in attached.read.parameters if self._is_replicated(p.number)]
        if check_every and not self._compared:
            warnings.warn("check_every has no effect: by this plan all replicas may differ", stacklevel=4)
        self._checkpoint = _checkpoint(attached)
        self._consensus = Consensus(attached.model, attached.governed("local", "runs"), attached.groups)
        native = any(body.gradient is not None for body in attached.manifest.bodies)
        equal = attached.governed("replicated")
        self._join = Join(attached.groups, attached.read.tensors, equal, attached.programs, native)
        if attached.programs is not None and attached.programs.asynchrony is not None:
            attached.programs.asynchrony.in_step(native or attached.programs.waits)
        self._removable: list[Any] = []
        if scaler is not None:
            self._engine.set_loss_scale(scaler.get_scale)
        self._hook_model(attached.model, scaled=scaler is not None)
        self._hook_optimizers(attached.model, optimizers)
        self._removable += [_refuse_thawed(n, t) for n, t in attached.read.frozen if t.is_floating_point()]
        self._start()

    def _start(self) -> None:
        self._watch.start()
        self._engine.start(self._watch)
        self._engine.set_on_backward(_OnBackward(self._engine, self._programs, self._join))
        parts = [self._programs.asynchrony, self._programs.operations] if self._programs is not None else []
        self._finalizer = weakref.finalize(self, _stop, self._engine, parts, self._watch)
        self._anchor = drop_anchor(self._attached.model, self._read.tensors, self)
        _attached.update({tensor: weakref.ref(self) for tensor in self._read.tensors})
        if self._programs is not None:
            self._programs.naming = self._join.before_step
            if self._programs.asynchrony is not None:
                self._programs.asynchrony.start()
            with torch.no_grad():
                self._programs.begin()

    def _hook_model(self, model: nn.Module, scaled: bool) -> None:
        self._removable.append(model.register_forward_pre_hook(ForwardGuard(scaled or not self._remembers())))
        self._removable.append(model.register_forward_pre_hook(BeforeForward(self._engine, self._join)))
        if self._programs is None:
            return
        self._removable.append(model.register_forward_pre_hook(Asked(self._programs, "forward")))
        for module in self._parts():
            self._removable.append(module.register_forward_pre_hook(AskedOfPart(self._programs, "part")))
        self._hook_readers(model, self._programs)
        for module in model.modules():
            reading, loading = Asked(self._programs), Asked(self._programs, "loading")
            self._removable.append(module.register_state_dict_pre_hook(reading))  # type: ignore[no-untyped-call]
            self._removable.append(module.register_load_state_dict_pre_hook(loading))  # type: ignore[no-untyped-call]

    def _hook_readers(self, model: nn.Module, programs: Programs) -> None:
        """Where weights may be waited for bucket by bucket."""
        programs.needs = needs_of(self._manifest, model, programs.clocks)
        if programs.needs is not None:
            self._removable.append(model.register_forward_hook(Left(programs), always_call=True))
            self._removable += [m.register_forward_pre_hook(Read(programs)) for m in programs.needs.modules]

    def _remembers(self) -> bool:
        """Whether something of scaled gradients lives on to the next iteration."""
        native = [body.gradient for body in self._manifest.bodies if body.gradient is not None]
        programs = self._programs is not None and self._programs.exchange_in_backward
        return programs or any(g.delay or g.exchange.feedback != "none" for g in native)

    def _hook_optimizers(self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        hide = HideUnlanded(self._engine, self._read.tensors)
        for number, optimizer in enumerate(optimizers):
            guard = StepGuard(self._engine, model, self._read, optimizer, self._schedule.workers == 1)
            step = self._program_step(number)
            last = number == len(optimizers) - 1 and self._check_every and self._compared
            hooks = StepHooks(
                [self._refuse_in_consensus, guard.before, *(s.before for s in step), hide.before],
                [*(s.after for s in step), hide.after, *([self._after_step] if last else [])],
                [guard.undo, *(s.give_back for s in step), hide.after],
            )
            self._removable.append(optimizer.register_step_pre_hook(hooks.before))
            self._removable.append(optimizer.register_step_post_hook(hooks.after))

    def _program_step(self, number: int) -> list[ProgramStep]:
        clock = self._programs.by_optimizer[number] if self._programs is not None else None
        return [] if self._programs is None or clock is None else [ProgramStep(self._programs, clock)]

    def _refuse_in_consensus(self, *_: Any) -> None:
        if self._consensus.depth:
            raise ExchangeError(
                "RX0617", "optimizer.step() within relaxed.consensus(), whose weights are given back at its end",
                "train outside of it",
            )  # fmt: skip

    def _after_step(self) -> None:
        if self._engine.iterations % self._check_every or self._join.active:
            return
        self.complete()
        names = [self._read.parameters[n].name for n in self._compared]
        tensors = [self._read.tensors[n] for n in self._compared]
        try:
            check_replicas(names, tensors, self._groups, self._engine.iterations)
        except RuntimeError as error:  # of the backend: a worker is lost
            self._watch.on_failure(self._engine.iterations - 1, -1, -1, str(error))

    def _is_replicated(self, parameter: int) -> bool:
        return self._manifest.bodies[self._schedule.bodies[parameter]].agreement == "replicated"

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within it backward() only accumulates into `.grad`; the next backward() outside exchanges the sum."""
        before, self._engine.enabled = self._engine.enabled, False
        try:
            yield
        finally:
            self._engine.enabled = before

    @contextmanager
    def consensus(self) -> Iterator[None]:
        """Within it every replica holds the average of the replicas' weights, and of their buffers (those that are no
        floating point numbers are rank 0's): for evaluation and for saving. At its end each has its own again.

        Collective. Training within it is refused.
        """
        if self._join.active:
            raise ExchangeError(
                "RX0617", "consensus() within join(): workers that have run out can't take part",
                "evaluate behind the loop, or before join()",
            )  # fmt: skip
        with self._watch.within("consensus()"), self.swap():
            outer = self._programs if self._consensus.depth == 0 else None
            if outer is not None and outer.asynchrony is not None:
                outer.come_to_rest()
                self._consensus.groups = outer.asynchrony.groups
            try:
                self._enter_consensus()
                try:
                    yield
                finally:
                    self._consensus.leave()
            finally:
                if outer is not None:
                    outer.launch_again()

    def _enter_consensus(self) -> None:
        try:
            self._consensus.enter()
        except RuntimeError as error:  # of the backend: a worker is lost
            self._watch.on_failure(self._engine.iterations, -1, -1, str(error))

    @contextmanager
    def swap(self) -> Iterator[None]:
        """Around a swap of weights that is undone at its end, such as an evaluation with a running average: within it
        nothing of the next iteration begins."""
        outer = self._programs is not None and not self._programs.paused
        if self._programs is not None and outer:
            self._programs.pause()
        try:
            yield
        finally:
            if self._programs is not None and outer:
                self._programs.go_on()

    @contextmanager
    def join(self) -> Iterator[None]:
        """Around a loop whose workers have different numbers of batches. One that has run out takes part in the others'
        exchanges, with absent gradients and without steps, until all have; then replicas that must be identical are
        made so, from a worker that trained to the end.

        Collective, also where a worker has no batch at all. Within it, every iteration costs a message of a few bytes
        to everyone; optimizers' states are each worker's own.
        """
        self._join.enter()
        parts = [m.register_forward_pre_hook(BeforeForward(self._engine, self._join)) for m in self._parts()]
        try:
            yield
            self._join.leave()
        except RuntimeError as error:
            if isinstance(error, RelaxError):
                raise
            self._watch.on_failure(self._engine.iterations, -1, -1, str(error))
        finally:
            self._join.active = False
            for part in parts:
                part.remove()

    def _parts(self) -> list[nn.Module]:
        """Those that a loop may call by themselves."""
        model = self._attached.model
        return [m for m in model.modules() if m is not model and any(True for _ in m.parameters(recurse=False))]

    def complete(self) -> None:
        """See that weights are what the last iteration makes of them. A forward of the model does this by itself, and
        so does state_dict()."""
        if self._programs is not None:
            self._programs.complete()

    def state_dict(self) -> dict[str, Any]:
        """Flat: plain tensors and numbers, keyed by parameter name and rank (attach/checkpoint.py and
        attach/program_state.py say which)."""
        return self._checkpoint.state()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Of the same number of workers: the same bits as not stopping. Of another: pass the union of all workers'
        states.

        Raise ExchangeError (RX0606) where `state` is of another plan or model.
        """
        self._checkpoint.load(state)

    def stats(self) -> dict[str, float | int]:
        """Flat scalars. Bytes are this worker's; `*_seconds` are sums since attach: exchange under way, kernels at
        work, and exposed, which is what the loop waited. `exchanges` counts those of gradients, with which
        `predicted_bytes_per_iteration` goes, and `jobs` those of programs. `predicted_bytes` is what the plan says that
        all of them have sent. `trips` counts the blocks for which a codec's guard did not hold, which were sent to this
        worker once more, in full; its own such messages are in `bytes_sent`, and not predicted. `staleness` counts
        iterations.

        Where something is asynchronous: `launched`, `landed` and `dropped` count its exchanges, `matching_seconds` is
        what they have waited for partners while training went on, `lost_workers` how many workers are known to be
        dead; `staleness` is then the largest age at which something has landed."""
        return stats_of(self._attached)

    @contextmanager
    def record(self, path: str | Path) -> Iterator[None]:
        """Within it each worker writes what its asynchronous exchanges do to `path/rankR.jsonl`: launches, landings and
        drops, with the iteration and the partners. `relaxc.program.record` reads it.

        Raise ExchangeError (RX0626) where nothing is asynchronous, the plan is detached or a record is being made, and
        BuildError (RX0520) where the file can't be written.
        """
        asynchrony = self._programs.asynchrony if self._programs is not None else None
        if asynchrony is None:
            raise ExchangeError("RX0626", "nothing of this plan is asynchronous, so there is nothing to record")
        if not self._finalizer.alive:
            raise ExchangeError("RX0626", "the plan has been detached", "record before detach()")
        if asynchrony.recorder is not None:
            raise ExchangeError("RX0626", "a record is being made already, and there can be one", "end it first")
        with closing(Recorder(Path(path), self._schedule.rank)) as recorder:
            asynchrony.record(recorder)
            try:
                yield
            finally:
                asynchrony.recorder = None

    def profile(self, path: str | Path, iterations: int = 5, rank: int = 0) -> AbstractContextManager[None]:
        """Around a loop: worker `rank` writes to `path` what its first `iterations` iterations in there were made of,
        as medians, for `relaxc report --measured`; the others go on as ever. torch's profiler does the watching, so
        they take a little longer than usual.

        Raise ExchangeError (RX0640) where the plan is detached or torch's profiler is at work already, and at its end
        where there was no whole iteration; BuildError (RX0520) where the file can't be written.
        """
        if not self._finalizer.alive:
            raise ExchangeError("RX0640", "the plan has been detached", "profile iterations before detach()")
        return profiled(self._attached, self._optimizers, Path(path), iterations, rank)

    def residual_norms(self) -> dict[str, float]:
        """By parameter, the Euclidean norm of what this worker's encoders have lost and not yet sent."""
        return residual_norms(self._attached)

    def detach(self) -> None:
        """Finish what weights wait for and what is under way, remove every hook and leave the process groups. The model
        trains on alone. A result that would have landed in a later iteration is dropped.

        Collective, at the same place of the loop on all workers. Where the exchange has failed it says so once more;
        the hooks are gone all the same.
        """
        if not self._finalizer.alive:
            return
        try:
            self._engine.drain()
            self.complete()
            if self._programs is not None:
                self._programs.come_to_rest()
                self._programs.drain()
        finally:
            self._finalizer()
            self._anchor.held = None
            for removable in self._removable:
                removable.remove()
            for tensor in self._read.tensors:
                if tensor in _attached:
                    del _attached[tensor]


def _checkpoint(attached: Attached) -> Checkpoint:
    schedule, programs = attached.schedule, None
    if attached.programs is not None:
        programs = ProgramState(attached.manifest, attached.programs, schedule.rank, schedule.workers)
    return Checkpoint(attached.manifest, schedule, attached.read.parameters, attached.running, programs)


class _OnBackward:
    """Called at the end of each exchanging backward. Held by the runtime, so it holds nothing itself: what Python's
    collector can't follow would keep a dropped model."""

    def __init__(self, engine: Any, programs: Programs | None, join: Join) -> None:
        self._engine, self._join = weakref.ref(engine), weakref.ref(join)
        self._programs = weakref.ref(programs) if programs is not None else None

    def __call__(self) -> None:
        engine, join = self._engine(), self._join()
        programs = self._programs() if self._programs is not None else None
        if join is not None:
            join.after_backward()
        if programs is not None and engine is not None:
            programs.backward(engine.fired())


def _stop(engine: Any, parts: Sequence[Any], watch: Watch) -> None:
    engine.set_on_backward(None)
    engine.stop()
    for part in parts:
        if part is not None:
            part.stop()
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
