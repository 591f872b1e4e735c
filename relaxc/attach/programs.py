"""The programs of a plan at work: what is made at attach, and what the loop's events do to it."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch import nn
from torch._C._distributed_c10d import HashStore, PrefixStore  # its own, which it doesn't export to type checkers

from relaxc.attach.asynchrony import Asynchrony
from relaxc.attach.buffers import make_memory
from relaxc.attach.calls import Site
from relaxc.attach.clock import Clock, Reached
from relaxc.attach.cohort import Cohort, Settings, Worker
from relaxc.attach.fitting import FittedPrograms
from relaxc.attach.groups import PATIENCE, Groups, join_group
from relaxc.attach.lanes import Lane
from relaxc.attach.low_rank import start_factors
from relaxc.attach.matching import Matchmaker
from relaxc.attach.needs import Needs, refuse_unread
from relaxc.attach.parameters import ModelParameters
from relaxc.attach.places import Place
from relaxc.attach.runner import Runner
from relaxc.attach.traffic import Traffic
from relaxc.errors import ExchangeError
from relaxc.manifest import Manifest
from relaxc.schedule.buckets import Bucket


class Programs:
    """`clocks` are by optimiser, those without a program left out. Gradients were divided by `loss_scale` where a
    GradScaler is used."""

    def __init__(
        self, operations: Any, traffic: Traffic, clocks: Sequence[Clock | None], scaler: Any,
        asynchrony: Asynchrony | None = None,
    ) -> None:  # fmt: skip
        self.operations, self.traffic, self.by_optimizer = operations, traffic, tuple(clocks)
        self.asynchrony = asynchrony
        self._fresh = True
        """Whether an iteration has begun since weights were loaded."""

        self.clocks = [clock for clock in clocks if clock is not None]
        self.cohorts = [cohort for clock in self.clocks for cohort in clock.cohorts]
        self._scaler, self._scale = scaler, 1.0
        self.shadowing = False
        """Within join(), for a worker that has run out: a backward without gradients counts for all."""

        self._told = False
        self.paused = False
        """Within consensus() and swap()."""

        self.needs: Needs | None = None
        """Where weights are waited for bucket by bucket."""

        self.copy_state: Callable[[], bytes] = bytes
        """What one that comes back takes over from this worker."""

        self.naming: Callable[[int], None] | None = None
        """Within join(), tells the other workers of a step of this optimiser."""

    @property
    def exchange_in_backward(self) -> bool:
        return any(path.stages.get("backward") for c in self.cohorts for path in c.program.paths)

    @property
    def idle(self) -> bool:
        """Whether asking for weights has nothing left to do: the whole model's forward has asked already, or asks for
        each bucket where it is read."""
        if self.needs is not None and self.needs.inside:
            return True
        return all(clock.reached is Reached.BEGIN and not clock.backwards for clock in self.clocks)

    def begin(self) -> None:
        for clock in self.clocks:
            clock.begin()

    def backward(self, fired: Sequence[bool]) -> None:
        """At the end of an exchanging backward. `fired` tells by parameter whether it had a gradient."""
        with torch.no_grad():
            for clock in self.clocks:
                if clock.late and clock.does("tail") and clock.tail is None:
                    raise _not_asked()
                refuse_unread(clock, fired)
                clock.begin()
                if self.shadowing or _touched(clock, fired):
                    clock.count_backward()
                    self._scale = self._loss_scale()
                    self._backward(clock)

    def _backward(self, clock: Clock) -> None:
        if not clock.does("backward"):
            return
        if clock.reached is not Reached.BEGIN:
            raise ExchangeError(
                "RX0615", "a second backward() before optimizer.step(), and this program exchanges gradients in each",
                "accumulate within relaxed.no_sync(), all micro-batches but the last",
            )  # fmt: skip
        self._unscaled(clock, clock.backward)

    def _unscaled(self, clock: Clock, run: Any) -> None:
        """States are kept without the loss scale, so programs see gradients without it."""
        grads = [t.grad for t in clock.tensors if t.grad is not None] if self._scale != 1 else []
        for grad in grads:
            grad.mul_(1 / self._scale)
        run()
        for tensor in clock.tensors if self._scale != 1 else ():
            if tensor.grad is not None:
                tensor.grad.mul_(self._scale)

    def stepped(self) -> None:
        if self.asynchrony is not None:
            self.asynchrony.matchmaker.crew.steps += 1

    def before(self, clock: Clock) -> None:
        self._name(clock)
        clock.before()

    def _name(self, clock: Clock) -> None:
        if self.naming is not None:
            self.naming(self.by_optimizer.index(clock))

    def after(self, clock: Clock) -> None:
        clock.after()
        if self.asynchrony is not None and self.asynchrony.wanted and all(c.rests for c in self.clocks):
            self.complete()
            assert self.asynchrony.door is not None
            self.asynchrony.door.give(self.copy_state)

    def asked(self, training: bool, whole: bool = True) -> None:
        """Weights are needed. Where that is for training, the next iteration begins, and a step that was left out is
        noticed. `whole`: by a forward of the whole model."""
        if self.paused:
            return
        self._fresh = self._fresh or training
        if not training:
            for clock in self.clocks:
                clock.complete()
            return
        for clock in self.clocks:
            self._make_up(clock)
            self._refuse_dropped(clock)
        if self.needs is None or not (whole and self.needs.enter()):
            self.begin()

    def make_up(self) -> None:
        for clock in self.clocks:
            self._make_up(clock)

    def pause(self) -> None:
        """Weights are swapped for others for a while, in which nothing begins."""
        self.complete()
        self.paused = True

    def go_on(self) -> None:
        """The weights are back."""
        self.paused = False
        for clock in self.clocks:
            clock.note()

    def rewind(self) -> None:
        """Other weights are about to be loaded, on all workers alike: what has begun with the old ones begins anew."""
        self.complete()
        begun = [clock for clock in self.clocks if clock.reached is Reached.BEGIN]
        if self.asynchrony is not None and self._fresh:
            self._fresh = False
            self.asynchrony.come_to_rest(forgets=True)
            self.asynchrony.forget()
            self.asynchrony.go_on()
        if any(clock.does("begin") for clock in begun):
            self.traffic.forget()
        for clock in begun:
            clock.restore()
        for clock in self.clocks:
            clock.restart = clock.iterations == 0 and not clock.resumed
        if not self._told and any(
            clock.iterations and cohort.program.start for clock in self.clocks for cohort in clock.cohorts
        ):
            self._told = True
            warnings.warn(
                "weights were loaded into a model whose plan has states from its own training: load "
                "relaxed.state_dict() with them, or attach after loading",
                stacklevel=4,
            )

    def complete(self) -> None:
        """Weights are complete."""
        with torch.no_grad():
            for clock in self.clocks:
                self._make_up(clock)
                clock.complete()

    def _make_up(self, clock: Clock) -> None:
        """Where a GradScaler left out optimizer.step(), the body runs without it, so that nobody waits."""
        if clock.backwards and self._was_skipped():
            self._name(clock)
            clock.skip()

    def _refuse_dropped(self, clock: Clock) -> None:
        alone = len(self.clocks) == 1 and self._scaler is None  # of two optimisers, one may drop what is for the other
        if alone and clock.backwards and all(t.grad is None for t in clock.tensors):
            raise ExchangeError(
                "RX0621", "gradients were dropped without an optimizer.step(), for which the other workers wait",
                "step with the optimizer that attach was given; where a GradScaler left the step out: attach(..., "
                "scaler=scaler); a pass that no step follows goes into relaxed.no_sync()",
            )  # fmt: skip

    def _was_skipped(self) -> bool:
        """The loss scale fell. Gradients don't tell: those of one of several micro-batches may be zeros, and a loop may
        drop those of a pass that no step follows."""
        return self._scaler is not None and self._loss_scale() < self._scale

    def _loss_scale(self) -> float:
        return float(self._scaler.get_scale()) if self._scaler is not None else 1.0

    def residuals(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What this worker's encoders have lost, by parameter."""
        for site in (site for cohort in self.cohorts for site in cohort.sites):
            for residual, parameter in itertools.product(site.memory.residuals, site.members):
                parts = (residual.worker.view(parameter.number), residual.owner.view(parameter.number))
                yield from ((parameter.name, part) for part in parts if part.numel())

    @property
    def waits(self) -> bool:
        """Whether iterations have exchanges that all take part in at the same time."""
        transfers = [t for cohort in self.cohorts for t in cohort.program.transfers]
        return any(not t.asynchronous for t in transfers)

    def come_to_rest(self) -> None:
        """Collective where something is asynchronous. What has arrived anywhere has landed everywhere; nothing begins
        until go_on()."""
        if self.asynchrony is None:
            return
        self.complete()
        self.asynchrony.come_to_rest()
        if any(clock.does("begin") for clock in self.clocks if clock.reached is Reached.BEGIN):
            self.traffic.forget()
        with torch.no_grad():
            for clock in self.clocks:
                clock.land()

    def launch_again(self) -> None:
        """After come_to_rest()."""
        if self.asynchrony is not None:
            self.asynchrony.go_on()

    def drain(self) -> None:
        self.operations.drain()

    def stop(self) -> None:
        if self.asynchrony is not None:
            self.asynchrony.stop()
        self.operations.stop()


def _touched(clock: Clock, fired: Sequence[bool]) -> bool:
    return any(fired[p.number] for cohort in clock.cohorts for site in cohort.sites for p in site.members)


def _not_asked() -> ExchangeError:
    return ExchangeError(
        "RX0616", "backward() ran on weights that were not complete: the forward did not go through the attached model",
        "call the model itself, not its parts, or relaxed.complete() before the forward",
    )  # fmt: skip


# --- made at attach


def make_programs(
    runtime: ModuleType, library: Path | None, manifest: Manifest, read: ModelParameters, groups: Groups,
    channel: Any, watch: Any, optimizers: Sequence[torch.optim.Optimizer], scaler: Any, fitted: FittedPrograms,
    device: Any = None,
) -> Programs | None:  # fmt: skip
    """None where no parameter has a program. `channel` is the runtime's, over which all workers go in step. `device` is
    as engine.make_engine's."""
    if not fitted.buckets:
        return None
    path = None if library is None else str(library)
    operations = runtime.Operations(channel, groups.rank, groups.workers, manifest.seed, path, watch, device=device)
    traffic = Traffic(operations, groups.workers, groups.rank, manifest.piece_bytes, manifest.few_piece_bytes)
    sites: dict[tuple[int, Place], list[Site]] = {}
    for number, bucket in enumerate(fitted.buckets):
        place = cast("Place", bucket.group)
        site = _site(runtime, operations, manifest, read, groups, number, bucket, optimizers[place.optimizer])
        traffic.add(site)
        sites.setdefault((bucket.body, place), []).append(site)
    worker = Worker(groups.rank, groups.workers, manifest.seed)
    runner = Runner(operations, traffic)
    lanes = _Lanes(lambda group: runtime.Operations(
        runtime.Channel(group), groups.rank, groups.workers, manifest.seed, path, watch, survives=True, device=device
    ), traffic, groups, watch)  # fmt: skip
    cohorts: dict[int, list[Cohort]] = {}
    for (_body, place), members in sites.items():
        cohort = _cohort(members, place, optimizers, worker)
        cohort.use(lanes.of(cohort))
        cohorts.setdefault(place.optimizer, []).append(cohort)
    clocks = [Clock(cohorts[n], runner) if n in cohorts else None for n in range(len(optimizers))]
    programs = Programs(operations, traffic, clocks, scaler, lanes.together())
    with torch.no_grad():
        runner.start(programs.cohorts)
    return programs


class _Lanes:
    """Makes the lanes of cohorts, in the same order on all workers: each has a group of its own."""

    def __init__(self, operations: Callable[[Any], Any], traffic: Traffic, groups: Groups, watch: Any) -> None:
        self._operations, self._traffic, self._groups, self._watch = operations, traffic, groups, watch
        self._made: list[Lane] = []
        limit = groups.timeout.total_seconds()
        store = PrefixStore("asynchronous", groups.store)
        self._matchmaker = Matchmaker(store, groups.rank, groups.workers, limit)

    def of(self, cohort: Cohort) -> dict[int, Lane]:
        blocks = sorted({t.block for t in cohort.program.transfers if t.asynchronous})
        return {block: self._lane(cohort, block) for block in blocks}

    def _lane(self, cohort: Cohort, block: int) -> Lane:
        groups = self._groups
        group = None
        if groups.workers > 1:
            part, limit = f"lane/{len(self._made)}", PATIENCE * groups.timeout
            whom = (HashStore(), part, 0, 1) if groups.rejoins else (groups.store, part, groups.rank, groups.workers)
            group = join_group(*whom, limit)
        lane = Lane(
            cohort.program, block, cohort.sites, cohort.partners, self._operations(group), self._traffic,
            self._matchmaker, self._watch,
        )  # fmt: skip
        self._made.append(lane)
        return lane

    def together(self) -> Asynchrony | None:
        return Asynchrony(self._made, self._matchmaker, self._groups, self._watch) if self._made else None


def _site(
    runtime: ModuleType, operations: Any, manifest: Manifest, read: ModelParameters, groups: Groups, number: int,
    bucket: Bucket, optimizer: torch.optim.Optimizer,
) -> Site:  # fmt: skip
    program = manifest.bodies[bucket.body].program
    assert program is not None
    tensors: dict[int, nn.Parameter] = {p: read.tensors[p] for p in bucket.parameters}
    memory = make_memory(program, bucket, read.parameters, groups.workers, groups.rank, read.device)
    members = tuple(read.parameters[p] for p in bucket.parameters)
    start_factors(program, memory, members, manifest.seed)
    return Site(number, bucket, program, members, tensors, memory, optimizer, runtime, operations)


def _cohort(sites: Sequence[Site], place: Place, optimizers: Sequence[torch.optim.Optimizer], worker: Worker) -> Cohort:
    cohort = Cohort(sites[0].program, sites, Settings(optimizers[place.optimizer], place.group), worker)
    for block, head in place.heads:
        cohort.control.start_staggered(block, head)
    return cohort
