"""Carries out the operations of a stage for cohorts side by side.

Cohorts advance in waves: each to the next exchange that it starts. What starts in one wave leaves as one job for each
exchange (and round, where partners change), so on all workers the same jobs follow one another: guards are the same
everywhere, and nothing else decides. Within a wave one bucket after the other is computed and leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from relaxc.attach.calls import Site, plain_calls
from relaxc.attach.cohort import Cohort
from relaxc.attach.traffic import Traffic
from relaxc.manifest import FragmentPlan, OperationPlan


@dataclass(frozen=True)
class _Part:
    """What a cohort does in a wave: operations, the last of which starts `transfer` where that is not None."""

    cohort: Cohort
    operations: tuple[OperationPlan, ...]
    transfer: int | None

    @property
    def key(self) -> tuple[int, ...] | None:
        """The same for parts that leave together."""
        if self.transfer is None:
            return None
        cohort, number = self.cohort, self.transfer
        if cohort.program.transfers[number].asynchronous:  # each cohort's by itself
            return cohort.sites[0].number, number, -1
        round = cohort.partners[number].round_of(self.round)
        return cohort.sites[0].bucket.body, number, round, self.copy, cohort.t

    @property
    def round(self) -> int:
        assert self.transfer is not None
        return self.cohort.turn.rounds[self.cohort.program.transfers[self.transfer].block]

    @property
    def copy(self) -> int:
        return self.cohort.copy(f"slot.{self.transfer}", late=False)


class Runner:
    def __init__(self, operations: Any, traffic: Traffic) -> None:
        self._operations, self._traffic = operations, traffic

    def stage(self, cohorts: Sequence[Cohort], name: str) -> None:
        waiting = [(cohort, operations) for cohort in cohorts if (operations := cohort.stage(name))]
        while waiting:
            parts = [_next_part(cohort, operations) for cohort, operations in waiting]
            self._wave(parts)
            waiting = [(part.cohort, left) for part, (_, operations) in zip(parts, waiting, strict=True)
                       if (left := operations[len(part.operations) :])]  # fmt: skip
        for cohort in cohorts:
            for lane in cohort.lanes.values():
                lane.stage_done(name, cohort.path)

    def part(self, cohort: Cohort, site: Site, name: str) -> None:
        """A stage that starts no exchange, of one bucket alone."""
        for operation in cohort.stage(name):
            self._operate(cohort, site, operation)

    def start(self, cohorts: Sequence[Cohort]) -> None:
        """Compute the states that are no numbers, at attach."""
        for cohort in cohorts:
            cohort.open_start()
            for number in cohort.program.start:
                for site in cohort.sites:
                    self._compute(cohort, site, number)

    def _wave(self, parts: Sequence[_Part]) -> None:
        groups: dict[Any, list[_Part]] = {}
        for part in parts:
            groups.setdefault(part.key, []).append(part)
        for key, together in groups.items():
            leaves = None if key is None else self._open(together)
            for part in together:
                for site in part.cohort.sites:
                    for operation in part.operations:
                        self._operate(part.cohort, site, operation)
                    if leaves is not None:
                        leaves(site)

    def _open(self, parts: Sequence[_Part]) -> Callable[[Site], None]:
        """What is called for each site that may leave."""
        first = parts[0]
        assert first.transfer is not None
        transfer = first.cohort.program.transfers[first.transfer]
        if transfer.asynchronous:
            return first.cohort.lanes[transfer.block].open(first.transfer)
        sites = sorted((site for part in parts for site in part.cohort.sites), key=lambda site: site.number)
        meeting = first.cohort.partners[first.transfer].meet(first.round)
        job = self._traffic.open(sites, first.transfer, meeting, first.copy, first.cohort.t)
        return lambda site: self._traffic.ready(job, site)

    def _operate(self, cohort: Cohort, site: Site, operation: OperationPlan) -> None:
        if operation.kind == "compute":
            self._compute(cohort, site, operation.number)
        elif operation.kind == "finish" and not cohort.program.transfers[operation.number].asynchronous:
            copy = cohort.copy(f"slot.{operation.number}", operation.late)
            self._traffic.wait(site, operation.number, copy)

    def _compute(self, cohort: Cohort, site: Site, number: int) -> None:
        fragment = site.program.fragments[number]
        calls, weights = self._calls(cohort, site, number, fragment)
        self._operations.run(calls, _coordinate(cohort, fragment), cohort.numbers_of(fragment), weights)

    def _calls(
        self, cohort: Cohort, site: Site, number: int, fragment: FragmentPlan
    ) -> tuple[list[Any], list[float] | None]:
        copies = cohort.copies(site.fragment_kernel(fragment).operands, fragment.late)
        sends, receives = _coded(cohort, fragment)
        if sends is not None:
            link = self._traffic.current(site, sends, cohort.copy(f"slot.{sends}", late=False))
            return self._traffic.encodes(site, number, link, copies), None
        if receives is not None:
            link = self._traffic.current(site, receives, cohort.copy(f"slot.{receives}", late=False))
            return self._traffic.decodes(site, number, link, copies), list(link.meeting.weights) or None
        return plain_calls(site, number, copies), None


def _coordinate(cohort: Cohort, fragment: FragmentPlan) -> int:
    """What draws of an iteration's are keyed by. Those that take part in an asynchronous exchange are in different
    iterations, so its codes' are keyed by its round."""
    number = fragment.sends if fragment.sends is not None else fragment.receives
    transfer = cohort.program.transfers[number] if number is not None else None
    return cohort.turn.rounds[transfer.block] if transfer is not None and transfer.asynchronous else cohort.t


def _coded(cohort: Cohort, fragment: FragmentPlan) -> tuple[int | None, int | None]:
    """The transfers whose messages a fragment makes, and reads."""
    transfers, sends, receives = cohort.program.transfers, fragment.sends, fragment.receives
    return (
        sends if sends is not None and transfers[sends].leaves == "code" else None,
        receives if receives is not None and transfers[receives].lands == "code" else None,
    )


def _next_part(cohort: Cohort, operations: Sequence[OperationPlan]) -> _Part:
    """Up to the operation that starts an exchange, that one included."""
    for position, operation in enumerate(operations):
        started = _starts(cohort, operation)
        if started is not None:
            return _Part(cohort, tuple(operations[: position + 1]), started)
    return _Part(cohort, tuple(operations), None)


def _starts(cohort: Cohort, operation: OperationPlan) -> int | None:
    """A code leaves with the fragment that makes it; what is in a slot leaves with its `start`."""
    transfers = cohort.program.transfers
    if operation.kind == "compute":
        return _coded(cohort, cohort.program.fragments[operation.number])[0]
    leaves = operation.kind == "start" and transfers[operation.number].leaves == "slot"
    return operation.number if leaves else None
