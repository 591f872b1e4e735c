"""The iteration that a plan will have: on this model, over this network, among so many workers.

One worker's threads, cores and links in simulated time (predict_machine.py); the buckets, pieces and messages are those
that attach would make. All workers are taken to do alike, so what others send comes when this one sends its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from relaxc.manifest import Manifest
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.machines import on_machines_of
from relaxc.schedule.needs import lands_by_parts, readers
from relaxc.schedule.network import Network
from relaxc.schedule.predict_cohort import periods
from relaxc.schedule.predict_costs import Costs
from relaxc.schedule.predict_links import Links
from relaxc.schedule.predict_loop import Loop, gradients_of
from relaxc.schedule.predict_machine import Machine
from relaxc.schedule.predict_programs import Among, Fits, Programs, cohorts_of, sites_of
from relaxc.schedule.predict_queue import Queue
from relaxc.schedule.profile import Profile
from relaxc.schedule.schedule import Schedule, first_site, make_schedule
from relaxc.schedule.timeline import Span, Timeline, bound_of, cut
from relaxc.wire.parameters import Parameter

WARM = 3
"""Iterations beyond the longest delay until one is like the next."""
LONGEST = 512
"""Iterations of a period that are looked at."""
AT_LEAST = 2


def predict(
    manifest: Manifest, profile: Profile, network: Network, workers: int, rank: int = 0, cores: int = 2
) -> Timeline:
    """The iteration of worker `rank`, in seconds. `cores` are this worker's: with one, computation, coding and what
    carries messages take turns. Where a plan has phases, the last one's.

    Raise ModelError (RX0401) where no statement governs some parameter.
    """
    return Forecast(manifest, profile, workers, rank, network.per_machine).over(network, cores)


def slowest(manifest: Manifest, profile: Profile, network: Network, workers: int, cores: int = 2) -> Timeline:
    """As `predict`, of the worker whose iteration is longest. Where no link differs from others all are taken to do
    alike."""
    ranks = range(workers) if network.pairs else range(1)
    every = (predict(manifest, profile, network, workers, rank, cores) for rank in ranks)
    return max(every, key=lambda timeline: timeline.iteration)


class Forecast:
    """One plan on one model, for any number of networks with the same number of workers on a machine: it is cut into
    pieces once."""

    def __init__(self, manifest: Manifest, profile: Profile, workers: int, rank: int = 0, per_machine: int = 1) -> None:
        manifest = on_machines_of(manifest, per_machine)
        self._manifest, self._profile = manifest, profile
        self._parameters = parameters_of(profile)
        self._among = Among(workers, rank, manifest.seed)
        self._schedule = make_schedule(manifest, self._parameters, workers, rank)
        self._gradients = gradients_of(manifest, profile, self._parameters, self._schedule)
        self._fits = Fits(manifest, self._among)
        first, bodies = first_site(self._schedule), self._schedule.bodies
        self._sites = sites_of(manifest, self._parameters, bodies, workers, first)

    @property
    def schedule(self) -> Schedule:
        return self._schedule

    @property
    def sites(self) -> tuple[Bucket, ...]:
        """The buckets of programs."""
        return tuple(site.bucket for site in self._sites)

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        return self._parameters

    def over(self, network: Network, cores: int = 2) -> Timeline:
        machine, costs = Machine(cores), Costs(network)
        links = Links(machine, network, self._among.workers, self._among.rank)

        def queue() -> Queue:
            return Queue(machine, links, costs)

        cohorts = cohorts_of(self._fits, self._sites, queue)
        programs = Programs(machine, costs, queue(), self._fits, cohorts)
        loop = Loop(machine, costs, self._profile, queue(), self._gradients, programs, self._needs())
        lengths = _lengths(self._manifest, self._among.workers)
        machine.start(loop.run(lambda done: done < lengths.warm + lengths.counted))
        machine.run()
        return _timeline(machine.spans, loop.began, lengths.warm, self._profile.iteration)

    def _needs(self) -> dict[int, float] | None:
        """By bucket of programs, when a forward first reads its weights; None where weights are waited for as a
        whole."""
        programs = [self._manifest.bodies[site.bucket.body].program for site in self._sites]
        known = readers(self._manifest)
        members = [p for site in self._sites for p in site.members]
        if not all(p is not None and lands_by_parts(p) for p in programs) or any(p.name not in known for p in members):
            return None
        needed = {p.name: p.needed or 0.0 for p in self._profile.parameters}
        return {site.number: min(needed[p.name] for p in site.members) for site in self._sites}


class _Lengths(NamedTuple):
    warm: int
    counted: int


def _lengths(manifest: Manifest, workers: int) -> _Lengths:
    programs = [body.program for body in manifest.bodies if body.program is not None]
    found = [period for program in programs for period in periods(program, workers)]
    late = [body.gradient.delay for body in manifest.bodies if body.gradient is not None]
    late += [max(control.delay, 0) for program in programs for control in program.control]
    longest = min(max(found, default=1), LONGEST)
    # the first run of a period has nothing behind it that it would have to wait for
    first = longest if longest > 1 else 0
    return _Lengths(WARM + max(late, default=0) + first, max(longest, AT_LEAST))


def parameters_of(profile: Profile) -> tuple[Parameter, ...]:
    """Those of the model, in registration order."""
    return tuple(Parameter(n, p.name, tuple(p.shape), p.dtype) for n, p in enumerate(profile.parameters))


def _timeline(spans: Iterable[Span], began: list[float], warm: int, alone: float) -> Timeline:
    """Of the iterations behind the first `warm`: the mean time, and the spans of the one that sends most."""
    counted = list(zip(began[warm:-1], began[warm + 1 :], strict=True))
    iteration = (began[-1] - began[warm]) / len(counted)
    per_iteration = cut(spans, counted)
    busiest = max(range(len(counted)), key=lambda n: (_busy_link(per_iteration[n]), n))
    start = counted[busiest][0]
    shown = tuple(replace(s, start=s.start - start, end=s.end - start) for s in per_iteration[busiest])
    bound = bound_of([span for spans_ in per_iteration for span in spans_])
    return Timeline(shown, iteration, alone, bound)


def _busy_link(spans: Iterable[Span]) -> float:
    return sum(s.end - s.start for s in spans if s.lane == "link")
