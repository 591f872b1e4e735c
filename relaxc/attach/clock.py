"""Where the iteration of one optimiser's parameters stands, and what has to be done to get further.

begin, backward, before, the optimiser's own step, after, tail; then the numbers are committed and the next one begins:
at once where nothing is left for the tail, else when weights are next asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from relaxc.attach.cohort import Cohort
from relaxc.attach.cohort_state import Moment, flat, moment, restore
from relaxc.attach.lanes import STAGES, Lane
from relaxc.attach.runner import Runner
from relaxc.attach.tail import Tail
from relaxc.errors import ExchangeError, ModelError


class Reached(Enum):
    NOTHING = "nothing of the iteration is done"
    BEGIN = "begin"
    BACKWARD = "backward"
    BEFORE = "before"
    AFTER = "after"


class Clock:
    """`backwards` counts those since the last step."""

    def __init__(self, cohorts: Sequence[Cohort], runner: Runner) -> None:
        self.cohorts, self._runner = tuple(cohorts), runner
        self.reached = Reached.NOTHING
        self.backwards = 0
        self.iterations = 0
        self.saved: list[Moment] = []
        """The cohorts' numbers as the iteration found them."""
        self.tensors = tuple(
            site.tensors[p.number] for cohort in self.cohorts for site in cohort.sites for p in site.members
        )
        self._names = tuple(p.name for cohort in self.cohorts for site in cohort.sites for p in site.members)
        self._strides = [tensor.stride() for tensor in self.tensors]
        self._versions: list[int] = []
        self._in_backward: list[int] = []
        self.tail: Tail | None = None
        """Once the next forward has begun, if each bucket is completed where that reads it."""
        self.restart = False
        """Whether weights were loaded before the first iteration: states begin from those."""
        self.resumed = False
        """Whether states were loaded: they begin from nothing else, in whichever order weights come."""

    @property
    def late(self) -> bool:
        """Whether weights are not complete yet."""
        return self.reached is Reached.AFTER

    @property
    def rests(self) -> bool:
        """Whether this is between two iterations."""
        return self.reached in (Reached.NOTHING, Reached.BEGIN, Reached.AFTER) and not self.backwards

    def does(self, stage: str) -> bool:
        """Whether some cohort has something to do in a stage of this iteration."""
        return any(cohort.stage(stage) for cohort in self.cohorts)

    def _began_with_weights(self) -> bool:
        """Whether what was sent when the iteration began was made of weights, and not of states alone."""
        return any(
            "weight" in kernel.operands
            for cohort in self.cohorts
            for operation in cohort.stage("begin")
            if operation.kind == "compute"
            for kernel in cohort.program.fragments[operation.number].kernels
        )

    def begin(self) -> None:
        """See that the iteration has begun."""
        self.complete()
        if self.reached is Reached.NOTHING:
            if self.restart:
                self._runner.start(self.cohorts)
                self.restart = False
            self.saved = [moment(cohort) for cohort in self.cohorts]
            for cohort in self.cohorts:
                cohort.open()
            self._run("begin", Reached.BEGIN)
            self.note()

    def backward(self) -> None:
        self.begin()
        if self.reached is Reached.BEGIN:
            self._run("backward", Reached.BACKWARD)

    def before(self) -> None:
        self._refuse_laid_out_anew()
        self.backward()
        for cohort in self.cohorts:
            if self.reached is not Reached.BEFORE:
                cohort.arrive()
            cohort.settle()
        if self.reached is not Reached.BEFORE:  # which it is when a step that has failed is tried again
            if self._began_with_weights():
                self._refuse_changed("change them in a hook on optimizer.step() that is registered before attach")
            self._run("before", Reached.BEFORE)

    def after(self) -> None:
        self._run("after", Reached.AFTER)
        self.backwards = 0
        self.iterations += 1
        self.note()
        if not self.does("tail"):
            self.begin()

    def complete(self) -> None:
        """See that weights are what the last iteration makes of them."""
        if self.reached is not Reached.AFTER:
            return
        if self.tail is None:
            self._refuse_changed_behind_the_step()
            self._run("tail", Reached.NOTHING)
        else:
            self.tail.rest()
            self.reached, self.tail = Reached.NOTHING, None
        for cohort in self.cohorts:
            cohort.commit()

    def open_tail(self) -> None:
        """What is left of the last iteration, if something is, is done bucket by bucket from here on."""
        if self.tail is None and self.late and self.does("tail"):
            self._refuse_changed_behind_the_step()
            self.tail = Tail(self.cohorts, self._runner)

    def land(self) -> None:
        """Outside of an iteration: what has arrived lands. One that had begun begins anew, with what the weights are
        then."""
        if self.reached not in (Reached.NOTHING, Reached.BEGIN):
            raise ExchangeError(
                "RX0615", "the program is in the middle of an iteration, between backward() and optimizer.step()",
                "call it after optimizer.step()",
            )  # fmt: skip
        if self.reached is Reached.BEGIN:
            self.restore()
        for cohort in self.cohorts:
            for lane in cohort.lanes.values():
                self._land(cohort, lane)
        self.note()

    def _land(self, cohort: Cohort, lane: Lane) -> None:
        lane.begin_anew()
        if lane.lands(cohort.t, 0):
            cohort.open_landing(lane)
            for stage in STAGES:
                self._runner.stage([cohort], stage)
            cohort.commit_landing()

    def skip(self) -> None:
        """An iteration whose step is none: partners wait for what this worker sends. Its gradients count for nothing:
        they are why the step was left out."""
        held = [(tensor, tensor.grad) for tensor in self.tensors]
        for tensor in self.tensors:
            tensor.grad = None
        self.before()
        self.after()
        for tensor, grad in held:
            tensor.grad = grad

    def rewind(self) -> None:
        """Forget that the iteration has begun, for a state that is loaded: it begins again when it must."""
        self.reached, self.backwards, self.tail = Reached.NOTHING, 0, None
        self.restart, self.resumed = False, True

    def restore(self) -> None:
        """As before the iteration began."""
        for cohort, numbers in zip(self.cohorts, self.saved, strict=True):
            restore(cohort, flat(numbers))
        self.reached = Reached.NOTHING

    def _run(self, stage: str, reached: Reached) -> None:
        self._runner.stage(self.cohorts, stage)
        self.reached = reached

    # --- what the loop does to weights meanwhile

    def note(self) -> None:
        """From here on weights must stay as they are, until they are asked for or the optimiser steps."""
        self._versions = self._now()

    def _now(self) -> list[int]:
        """torch's counters of changes in place. Those through `.data` are not counted."""
        return [tensor._version for tensor in self.tensors]  # noqa: SLF001 - no public way to it

    def count_backward(self) -> None:
        """Another backward; those behind the first of an iteration accumulate, on the same weights."""
        versions = self._now()
        if self.backwards and versions != self._in_backward:
            raise ExchangeError(
                "RX0620", f"weights of {self._first(versions, self._in_backward)} changed between two backward passes "
                "without a step of the optimizer that the plan is attached to",
                "step with that optimizer; a pass that no step follows goes into relaxed.no_sync()",
            )  # fmt: skip
        self._in_backward = versions
        self.backwards += 1

    def _refuse_changed_behind_the_step(self) -> None:
        if self.does("tail"):
            self._refuse_changed("call relaxed.complete() before you change them")

    def _refuse_changed(self, help: str) -> None:
        versions = self._now()
        if versions != self._versions:
            raise ExchangeError(
                "RX0619", f"weights of {self._first(versions, self._versions)} were changed in place after this "
                "iteration's exchange had begun with them, which would undo the change",
                f"{help}; a swap that is undone goes into `with relaxed.swap():`",
            )  # fmt: skip

    def _first(self, now: Sequence[int], then: Sequence[int]) -> str:
        return next(name for name, one, other in zip(self._names, now, then, strict=True) if one != other)

    def _refuse_laid_out_anew(self) -> None:
        for name, tensor, stride in zip(self._names, self.tensors, self._strides, strict=True):
            if tensor.stride() != stride:
                raise ModelError(
                    "RX0409", f"parameter {name} was laid out anew in memory after attach",
                    "convert the model (memory_format, to()) before attach",
                )  # fmt: skip
