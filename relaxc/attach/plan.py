"""A built plan, ready to attach."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from relaxc.attach import machines
from relaxc.attach.agreement import agree, agree_with, facts_of, messages_of
from relaxc.attach.attached import Attached
from relaxc.attach.broadcast import broadcast_model
from relaxc.attach.devices import device_library, on_device
from relaxc.attach.engine import make_engine
from relaxc.attach.failure import Watch
from relaxc.attach.fitting import FittedPrograms, disconnected, fit_programs, refuse_backend, unfit, unsettled
from relaxc.attach.footprint import bytes_needed, refuse_full, scratch_needed
from relaxc.attach.groups import Groups, lost, make_groups
from relaxc.attach.ordered import by_host, by_nccl, over_nccl
from relaxc.attach.parameters import ModelParameters, read_parameters
from relaxc.attach.programs import make_programs
from relaxc.attach.rejoin import Rejoin, announce, find, groups_alone, refuse_group
from relaxc.attach.relaxed import Relaxed, refuse_attached
from relaxc.attach.snapshot import share_state
from relaxc.build.plan_files import MANIFEST, read_plan, usable_library
from relaxc.build.runtime import carried_runtime, load_runtime
from relaxc.errors import BuildError, ExchangeError, ModelError, RelaxError
from relaxc.manifest import Manifest, decode
from relaxc.schedule.schedule import Schedule, idle_bodies, make_schedule


@dataclass(frozen=True)
class Plan:
    """`library` holds the kernels for a CPU (None where nothing is coded, or where they were not compiled); `runtime`
    is the engine's binary where the plan carries it. `folder` has the plan's files."""

    manifest: Manifest
    library: Path | None
    runtime: Path | None = None
    folder: Path | None = None

    def attach(
        self, model: nn.Module, optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer], *,
        group: dist.ProcessGroup | None = None, scaler: Any = None, timeout: timedelta | float | None = None,
        check_every: int = 0, rejoin: Rejoin | None = None,
    ) -> Relaxed:  # fmt: skip
        """Train this model as the plan says, from now on.

        Collective: every worker of `group` (default: all processes) calls it. Parameters and buffers become rank 0's.
        `scaler`: the GradScaler in use. `timeout` (seconds, default 300) bounds every wait. `check_every` K > 0
        compares the replicas after every K-th iteration. `rejoin`: what relaxc.rejoining() returned, for a worker that
        was lost and is started again while the others train on.

        Raise ModelError (RX04) for a model that can't be served, ExchangeError (RX06) where the workers disagree or
        are not there, BuildError (RX05) where the runtime can't be built; then nothing has been changed.
        """
        optimizers = _checked(model, optimizer, scaler, check_every)
        if dist.is_available() and dist.is_initialized() and dist.get_rank(group) >= 0:
            refuse_backend(self.manifest, dist.get_backend(group))
        runtime = self._load_runtime()  # before the workers meet: it may have to be built, and nobody waits for that
        has_programs = any(body.program is not None for body in self.manifest.bodies)
        if rejoin is not None:
            refuse_group(group, rejoin)
            prefix, run = find(rejoin, self.manifest.hash)
            groups = groups_alone(rejoin, prefix, timeout, has_programs)
        else:
            groups, run = make_groups(group, timeout, has_programs), None
        settings = {"check_every": check_every, "scaler": scaler is not None}
        manifest, read, schedule, fitted, kernels = self._fit(model, optimizers, groups, group, runtime, settings, run)
        assert not isinstance(runtime, BuildError)
        channels = by_host(runtime, groups)
        if rejoin is None:
            try:
                broadcast_model(model, groups)
            except RuntimeError as error:
                raise lost(groups.rank, error) from error
            if over_nccl(manifest, group, read.device):
                channels = by_nccl(runtime, manifest, groups, read.device)
        watch = Watch(groups)
        running = make_engine(
            runtime, kernels.library, manifest, read, schedule, groups, channels.exchange, kernels.device
        )
        programs = make_programs(
            runtime, kernels.library, manifest, read, groups, channels.programs, watch, optimizers, scaler, fitted,
            kernels.device,
        )  # fmt: skip
        if programs is not None:
            share_state(programs, manifest, model, optimizers, groups)
        attached = Attached(manifest, model, read, schedule, groups, watch, running, programs)
        return Relaxed(attached, optimizers, scaler, check_every)

    def _load_runtime(self) -> ModuleType | BuildError:
        try:
            return load_runtime(self.runtime)
        except BuildError as error:
            return error  # the other workers must hear of it

    def _fit(
        self, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], groups: Groups,
        users: dist.ProcessGroup | None, runtime: ModuleType | BuildError, settings: dict[str, Any],
        run: dict[str, Any] | None,
    ) -> tuple[Manifest, ModelParameters, Schedule, FittedPrograms, Kernels]:  # fmt: skip
        """Fit the plan to the model, the workers and their machines, and see that all workers did the same. `run` are
        the facts of a run that this worker comes back to."""
        try:
            if isinstance(runtime, BuildError):
                raise runtime
            read = read_parameters(model)
            refuse_attached(read.tensors)
            _same_parameters(self.manifest, read)
            manifest = machines.on_machines(self.manifest, groups.rank, groups.workers)
            schedule = make_schedule(manifest, read.parameters, groups.workers, groups.rank)
            fitted = fit_programs(manifest, read, schedule, optimizers)
            shaky = unsettled(manifest, groups.workers)
            kernels = self._kernels(runtime, read.device)
            needed = bytes_needed(manifest, read, schedule, fitted) + scratch_needed(manifest, read)
            refuse_full(needed, read.device)
        except RelaxError as error:
            if run is None:
                agree(groups, error, {})
            raise
        messages = messages_of([*schedule.pieces, *fitted.pieces])
        if inners := machines.inners(manifest):
            settings = settings | {"workers of a machine": ", ".join(map(str, inners))}
        if run is None and over_nccl(manifest, users, read.device):
            settings = settings | {"messages": "over NCCL"}
        facts = facts_of(manifest, model, read, schedule, fitted, settings)
        if run is None:
            agree(groups, facts, messages)
            announce(groups, self.manifest.hash, facts, manifest, schedule.bodies)
        else:
            agree_with(run, facts, groups.rank)
        doubts = [f"`{b.statement}` governs no parameter of this model" for b in idle_bodies(manifest, schedule.bodies)]
        doubts += [*machines.doubts(self.manifest), *disconnected(manifest, groups.workers), *shaky]
        doubts += unfit(manifest, groups.workers)
        for doubt in doubts if groups.rank == 0 else ():
            warnings.warn(doubt, stacklevel=3)
        return manifest, read, schedule, fitted, kernels

    def _kernels(self, runtime: ModuleType, device: torch.device) -> Kernels:
        """For the device that the model is on. Raise BuildError (RX05) where they can't be had."""
        if on_device(device):
            return Kernels(None, device_library(runtime, self.folder, self.manifest, device))
        if self.library is None and self.folder is not None and _has_kernels(self.manifest):
            return Kernels(usable_library(self.folder, self.manifest), None)
        return Kernels(self.library, None)


class Kernels(NamedTuple):
    """Of a CPU, or the runtime's for a device."""

    library: Path | None
    device: Any


def _checked(model: Any, optimizer: Any, scaler: Any, check_every: Any) -> list[torch.optim.Optimizer]:
    """The optimisers. Raise ExchangeError (RX0607) for arguments that are none of attach's, before anyone is waited
    for: every worker runs the same call."""
    single = isinstance(optimizer, torch.optim.Optimizer)
    optimizers: list[Any] = [optimizer] if single else list(optimizer) if isinstance(optimizer, Iterable) else []
    if not isinstance(model, nn.Module):
        raise ExchangeError("RX0607", f"the model is a {type(model).__name__}", "call attach(model, optimizer)")
    if not optimizers or not all(isinstance(o, torch.optim.Optimizer) for o in optimizers):
        raise ExchangeError("RX0607", "the optimizer is not a torch.optim.Optimizer", "pass one, or a list of them")
    if scaler is not None and not hasattr(scaler, "get_scale"):
        raise ExchangeError("RX0607", "the scaler is not a GradScaler", "pass the GradScaler in use, or leave it out")
    if not isinstance(check_every, int) or check_every < 0:
        raise ExchangeError("RX0607", f"check_every = {check_every!r}", "give a number of iterations, or 0 for never")
    return optimizers


def _same_parameters(manifest: Manifest, read: ModelParameters) -> None:
    """A plan made for a model takes that model only."""
    if manifest.parameters is None:
        return
    wanted = [f"{p.name} {p.dtype}{list(p.shape)}" for p in manifest.parameters]
    found = [f"{p.name} {p.dtype}{list(p.shape)}" for p in read.parameters]
    for left, right in zip(wanted + ["nothing"] * len(found), found + ["nothing"] * len(wanted), strict=True):
        if left != right:
            raise ModelError(
                "RX0412", f"the plan was made for another model: it has {left} where this one has {right}",
                "compile it again with this model, or without one",
            )  # fmt: skip


def load(folder: str | Path) -> Plan:
    """The plan in `folder`, as `relaxc compile -o` wrote it. Raise BuildError (RX05) where it is damaged or another
    version's."""
    read_plan(Path(folder))
    return open_plan(Path(folder))


def open_plan(folder: Path) -> Plan:
    """A plan whose files are known to be whole: one of the cache, or one that `read_plan` has looked at."""
    manifest = decode((folder / MANIFEST).read_bytes())
    library = usable_library(folder, manifest) if _has_kernels(manifest) and manifest.cpu else None
    return Plan(manifest, library, carried_runtime(folder), folder)


def _has_kernels(manifest: Manifest) -> bool:
    coded = any(exchange.codec for body in manifest.bodies for exchange in body.exchanges)
    return coded or any(body.program.fragments for body in manifest.bodies if body.program is not None)
