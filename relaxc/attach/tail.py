"""What is left of an iteration behind the optimiser's step, bucket by bucket: each is completed where its weights are
read first. Of programs that start no exchange there (schedule/needs.py)."""

from __future__ import annotations

from collections.abc import Sequence

from relaxc.attach.calls import Site
from relaxc.attach.cohort import Cohort
from relaxc.attach.runner import Runner


class Tail:
    """`left` are the buckets whose weights are not complete, by number."""

    def __init__(self, cohorts: Sequence[Cohort], runner: Runner) -> None:
        self._runner = runner
        self.left: dict[int, tuple[Cohort, Site]] = {
            site.number: (cohort, site) for cohort in cohorts for site in cohort.sites
        }

    def land(self, number: int) -> None:
        """See that a bucket's weights are complete."""
        if number in self.left:
            self._runner.part(*self.left.pop(number), "tail")

    def rest(self) -> None:
        for number in sorted(self.left):
            self.land(number)
