"""Programs in simulated time: what attach/runner.py and attach/traffic.py do, on the clock of a machine."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from relaxc.manifest import FragmentPlan, Manifest, OperationPlan, ProgramPlan, TransferPlan
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.predict_cohort import Cohort, Lane, Site
from relaxc.schedule.predict_costs import Costs
from relaxc.schedule.predict_machine import Busy, Machine, Thread
from relaxc.schedule.predict_queue import Launch, Load, Queue
from relaxc.schedule.programs import HeadStarts, head_starts, program_buckets
from relaxc.schedule.transfers import Coding, TransferSchedule, schedule_transfer
from relaxc.topology.kinds import changes, met, neighbours
from relaxc.topology.topology import from_plain
from relaxc.topology.weights import receivers, weights
from relaxc.wire.parameters import Parameter, elements_before

PER_RANK = 1.5e-10
"""Seconds of a core for each element and rank of a matrix product of low rank, forward or back: about 13 GFLOP/s."""


@dataclass(frozen=True)
class Among:
    """Whose view it is."""

    workers: int
    rank: int
    seed: int


Met = tuple[tuple[int, ...], tuple[int, ...]]
"""Targets and sources."""


class Fits:
    """Exchanges fitted to buckets. Kept, since they come again in each iteration, and for other networks too."""

    def __init__(self, manifest: Manifest, among: Among) -> None:
        self.manifest, self.among = manifest, among
        self._made: dict[Hashable, TransferSchedule] = {}

    def of(self, transfer: TransferPlan, site: Site, number: int, round: int) -> TransferSchedule:
        met_ = self._meet(transfer, round)
        key = (site.bucket, number, met_)
        if key not in self._made:
            self._made[key] = schedule_transfer(
                transfer, site.members, site.number, self.among.workers, self.among.rank, self.manifest.piece_bytes,
                targets=met_[0], sources=met_[1], few_piece_bytes=self.manifest.few_piece_bytes,
            )  # fmt: skip
        return self._made[key]

    def _meet(self, transfer: TransferPlan, round: int) -> Met:
        if transfer.exchange.topology is None:
            return (), ()
        topology, (workers, rank, seed) = from_plain(transfer.exchange.topology), self._view
        if met(topology):  # whoever is ready: one of them
            peers = neighbours(topology, workers, rank)[:1]
            return peers, tuple(sorted((rank, *peers)))
        turn = round if changes(topology) else 0
        return (
            receivers(topology, workers, turn, seed, rank),
            tuple(peer for peer, _ in weights(topology, workers, turn, seed, rank)),
        )

    @property
    def _view(self) -> tuple[int, int, int]:
        return self.among.workers, self.among.rank, self.among.seed


def sites_of(
    manifest: Manifest, parameters: Sequence[Parameter], bodies: Sequence[int], workers: int, first: int
) -> list[Site]:
    """The buckets of programs, numbered from `first`."""
    before, total = elements_before(parameters)
    groups = [head_starts(manifest.bodies[body].program, before[p.number], total, workers)
              for body, p in zip(bodies, parameters, strict=True)]  # fmt: skip
    buckets = program_buckets(manifest, parameters, bodies, groups)
    return [Site(n, bucket, tuple(parameters[p] for p in bucket.parameters)) for n, bucket in enumerate(buckets, first)]


def cohorts_of(fits: Fits, sites: Sequence[Site], queue: Callable[[], Queue]) -> list[Cohort]:
    """`queue` makes one of its own for each asynchronous block."""
    together: dict[tuple[int, Hashable], list[Site]] = {}
    for site in sites:
        together.setdefault((site.bucket.body, site.bucket.group), []).append(site)
    return [_cohort(fits.manifest, members, fits.among, queue) for members in together.values()]


def _cohort(manifest: Manifest, sites: Sequence[Site], among: Among, queue: Callable[[], Queue]) -> Cohort:
    program = _program(manifest, sites[0].bucket)
    blocks = sorted({t.block for t in program.transfers if t.asynchronous})
    lanes = {block: Lane(queue()) for block in blocks}
    heads: HeadStarts = sites[0].bucket.group  # type: ignore[assignment]
    return Cohort(program, sites, heads, lanes, among.workers, among.rank, among.seed)


def _program(manifest: Manifest, bucket: Bucket) -> ProgramPlan:
    program = manifest.bodies[bucket.body].program
    assert program is not None
    return program


@dataclass(frozen=True)
class _Part:
    """What a cohort does up to the operation that starts `transfer`, that one included."""

    cohort: Cohort
    operations: tuple[OperationPlan, ...]
    transfer: int | None

    @property
    def key(self) -> Hashable:
        if self.transfer is None:
            return None
        transfer = self.cohort.program.transfers[self.transfer]
        site = self.cohort.sites[0]
        return (site.number, self.transfer) if transfer.asynchronous else (site.bucket.body, -1 - self.transfer)


class Programs:
    """All cohorts of a plan, and their queue."""

    def __init__(self, machine: Machine, costs: Costs, queue: Queue, fits: Fits, cohorts: Sequence[Cohort]) -> None:
        self._machine, self._costs, self._queue, self._fits = machine, costs, queue, fits
        self.cohorts = tuple(cohorts)
        self._under_way: dict[tuple[int, int], deque[Launch]] = defaultdict(deque)

    def does(self, stage: str) -> bool:
        return any(cohort.stage(stage) for cohort in self.cohorts)

    def open(self) -> Thread:
        for cohort in self.cohorts:
            for launch in cohort.open():
                yield launch.over

    def commit(self) -> None:
        for cohort in self.cohorts:
            cohort.commit()

    def stage(self, name: str) -> Thread:
        waiting = [(cohort, operations) for cohort in self.cohorts if (operations := cohort.stage(name))]
        while waiting:
            parts = [_next_part(cohort, operations) for cohort, operations in waiting]
            groups: dict[Hashable, list[_Part]] = {}
            for part in parts:
                groups.setdefault(part.key, []).append(part)
            for together in groups.values():
                yield from self._together(together)
            waiting = [(part.cohort, left) for part, (_, operations) in zip(parts, waiting, strict=True)
                       if (left := operations[len(part.operations) :])]  # fmt: skip

    def part(self, cohort: Cohort, site: Site, name: str) -> Thread:
        """A stage that starts no exchange, of one bucket alone."""
        for operation in cohort.stage(name):
            yield from self._operate(cohort, site, operation)

    def _together(self, parts: Sequence[_Part]) -> Thread:
        launch = self._open(parts)
        for part in parts:
            for site in part.cohort.sites:
                for operation in part.operations:
                    yield from self._operate(part.cohort, site, operation)
                if launch is not None and site.number in launch.ready:
                    self._machine.set(launch.ready[site.number])

    def _open(self, parts: Sequence[_Part]) -> Launch | None:
        cohort, number = parts[0].cohort, parts[0].transfer
        if number is None:
            return None
        transfer = cohort.program.transfers[number]
        sites = sorted((site for part in parts for site in part.cohort.sites), key=lambda site: site.number)
        launch = Launch([load for site in sites for load in self._loads(cohort, transfer, number, site)])
        for site in sites:
            self._under_way[site.number, number].append(launch)
        if not transfer.asynchronous:
            self._queue.push(launch)
            return launch
        lane = cohort.lanes[transfer.block]
        assert lane.flight is not None
        lane.flight.launches.append(launch)
        lane.queue.push(launch)
        return launch

    def _fit(self, cohort: Cohort, number: int, site: Site) -> TransferSchedule:
        transfer = cohort.program.transfers[number]
        return self._fits.of(transfer, site, number, cohort.turn.rounds.get(transfer.block, 0))

    def _loads(self, cohort: Cohort, transfer: TransferPlan, number: int, site: Site) -> list[Load]:
        fitted = self._fit(cohort, number, site)
        if transfer.exchange.rank and fitted.dense_bytes:  # one all-reduce after the other
            return [Load(site.number, None, None, fitted.dense_bytes // 2)] * 2
        if fitted.dense_bytes:
            return [Load(site.number, None, None, fitted.dense_bytes)]
        return [Load(site.number, piece, transfer.exchange) for piece in fitted.pieces]

    def _operate(self, cohort: Cohort, site: Site, operation: OperationPlan) -> Thread:
        if operation.kind == "compute":
            yield from self._compute(cohort, site, cohort.program.fragments[operation.number])
        elif operation.kind == "start":
            yield from self._products(cohort, site, operation.number, "encode", 2)
        elif operation.kind == "finish":
            if not cohort.program.transfers[operation.number].asynchronous:
                yield from self._wait(site, operation)
            yield from self._products(cohort, site, operation.number, "decode", 1)

    def _wait(self, site: Site, operation: OperationPlan) -> Thread:
        launches = self._under_way[site.number, operation.number]
        if launches:
            launch = launches.popleft() if operation.late else launches.pop()
            if site.number in launch.landed:
                yield launch.landed[site.number]

    def _products(self, cohort: Cohort, site: Site, number: int, lane: str, times: int) -> Thread:
        rank = cohort.program.transfers[number].exchange.rank
        yield Busy(times * rank * site.elements * PER_RANK, lane, f"rank {rank}", site.number)

    def _compute(self, cohort: Cohort, site: Site, fragment: FragmentPlan) -> Thread:
        kernel = fragment.kernels[0]
        made, read = _codes(cohort.program, fragment)
        if made is not None:
            for coding in self._fit(cohort, made, site).encodes:
                if not (fragment.lends and len(coding.ranges) == 1):
                    yield self._coding(cohort, made, coding, len(kernel.operands), "encode", site)
        elif read is not None:
            for coding in self._fit(cohort, read, site).decodes:
                yield self._coding(cohort, read, coding, len(kernel.operands), "decode", site)
        else:
            seconds = self._costs.local(site.elements, len(kernel.operands), site.members[0].real_bytes)
            yield Busy(seconds, "compute", fragment.label, site.number)

    def _coding(self, cohort: Cohort, number: int, coding: Coding, operands: int, lane: str, site: Site) -> Busy:
        codec = cohort.program.transfers[number].exchange.codec
        assert codec is not None
        elements = sum(r.elements for r in coding.ranges)
        line = self._costs.coding(codec)
        seconds = line.encode.at(elements) if lane == "encode" else len(coding.buffers) * line.decode.at(elements)
        return Busy(seconds + self._costs.local(elements, operands - 1), lane, lane, site.number)


def _codes(program: ProgramPlan, fragment: FragmentPlan) -> tuple[int | None, int | None]:
    """The transfers whose messages a fragment makes, and reads."""
    transfers, sends, receives = program.transfers, fragment.sends, fragment.receives
    return (
        sends if sends is not None and transfers[sends].leaves == "code" else None,
        receives if receives is not None and transfers[receives].lands == "code" else None,
    )


def _next_part(cohort: Cohort, operations: Sequence[OperationPlan]) -> _Part:
    for position, operation in enumerate(operations):
        started = _starts(cohort.program, operation)
        if started is not None:
            return _Part(cohort, tuple(operations[: position + 1]), started)
    return _Part(cohort, tuple(operations), None)


def _starts(program: ProgramPlan, operation: OperationPlan) -> int | None:
    """A code leaves with the fragment that makes it; what is in a slot leaves with its `start`."""
    if operation.kind == "compute":
        return _codes(program, program.fragments[operation.number])[0]
    leaves = operation.kind == "start" and program.transfers[operation.number].leaves == "slot"
    return operation.number if leaves else None
