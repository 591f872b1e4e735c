"""Where the iteration of one optimiser's parameters stands, and what has to be done to get further.

begin, backward, before, the optimiser's own step, after, tail; then the numbers are committed and the next one begins:
at once where nothing is left for the tail, else when weights are next asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from torch import nn

from relaxc.attach.cohort import Cohort
from relaxc.attach.cohort_state import Moment, flat, moment, restore
from relaxc.attach.runner import Runner


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

    @property
    def late(self) -> bool:
        """Whether weights are not complete yet."""
        return self.reached is Reached.AFTER

    @property
    def tensors(self) -> list[nn.Parameter]:
        return [site.tensors[p.number] for cohort in self.cohorts for site in cohort.sites for p in site.members]

    def does(self, stage: str) -> bool:
        """Whether some cohort has something to do in a stage of this iteration."""
        return any(cohort.stage(stage) for cohort in self.cohorts)

    def begin(self) -> None:
        """See that the iteration has begun."""
        self.complete()
        if self.reached is Reached.NOTHING:
            self.saved = [moment(cohort) for cohort in self.cohorts]
            for cohort in self.cohorts:
                cohort.open()
            self._run("begin", Reached.BEGIN)

    def backward(self) -> None:
        self.begin()
        if self.reached is Reached.BEGIN:
            self._run("backward", Reached.BACKWARD)

    def before(self) -> None:
        self.backward()
        for cohort in self.cohorts:
            cohort.settle()
        self._run("before", Reached.BEFORE)

    def after(self) -> None:
        self._run("after", Reached.AFTER)
        self.backwards = 0
        self.iterations += 1
        if not self.does("tail"):
            self.begin()

    def complete(self) -> None:
        """See that weights are what the last iteration makes of them."""
        if self.reached is Reached.AFTER:
            self._run("tail", Reached.NOTHING)
            for cohort in self.cohorts:
                cohort.commit()

    def skip(self) -> None:
        """An iteration whose step is none: partners wait for what this worker sends."""
        self.before()
        self.after()

    def rewind(self) -> None:
        """Forget that the iteration has begun: it begins again when it must."""
        self.reached, self.backwards = Reached.NOTHING, 0

    def restore(self) -> None:
        """As before the iteration began."""
        for cohort, numbers in zip(self.cohorts, self.saved, strict=True):
            restore(cohort, flat(numbers))
        self.reached = Reached.NOTHING

    def _run(self, stage: str, reached: Reached) -> None:
        self._runner.stage(self.cohorts, stage)
        self.reached = reached
