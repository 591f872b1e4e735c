"""Asynchronous exchanges: what one `after async` of one cohort has under way, on a group and a queue of its own.

The trainer's thread encodes a launch into its messages, which are the snapshot, and offers it; the matchmaker's thread
starts its jobs once all that take part have offered theirs, and looks after them. The trainer asks at the beginning of
an iteration whether the launch has arrived. A launch whose partner died is dropped: nothing of it lands.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from relaxc.attach.calls import Site
from relaxc.attach.crew import BEAT, given_up
from relaxc.attach.failure import RESTART, short
from relaxc.attach.flight import Flight, LaneCounts, Stage
from relaxc.attach.matching import Match, Matchmaker, Offer
from relaxc.attach.partners import Meeting, Partners
from relaxc.attach.traffic import JOBS, Traffic
from relaxc.errors import ExchangeError
from relaxc.manifest import PathPlan, ProgramPlan

ASK_EVERY = 0.05
"""Seconds between looks for those that are at rest."""
STAGES = ("begin", "backward", "before", "after", "tail")
"""Of an iteration, in their order (program/paths.py)."""
Note = Callable[[str, "Lane", "Flight", int], None]
"""What is told: (launch, land, settle or drop; whose; which; iteration)."""


class Lane:
    """`launches` is the number of launches so far, `flight` the one that has not landed, `landing` the one that lands
    in this iteration. The trainer's thread makes and takes away the flight, the matchmaker's carries it from OFFERED to
    where it ends."""

    def __init__(
        self, program: ProgramPlan, block: int, sites: Sequence[Site], partners: Sequence[Partners],
        operations: Any, traffic: Traffic, matchmaker: Matchmaker, watch: Any,
    ) -> None:  # fmt: skip
        self.block, self.sites = block, tuple(sites)
        self.body = sites[0].bucket.body
        self.parameter = min(p.number for site in sites for p in site.members)
        self.name = f"{self.body}.{self.parameter}.{block}"
        self.transfers = [n for n, t in enumerate(program.transfers) if t.asynchronous and t.block == block]
        self.operations, self.matchmaker = operations, matchmaker
        self.launches = 0
        self.flight: Flight | None = None
        self.landing: Flight | None = None
        self.counts = LaneCounts()
        self.note: Note = _tell_nobody
        self._program, self._partners, self._traffic, self._watch = program, partners, traffic, watch
        self._late = {name for fragment in program.fragments for name in fragment.late}
        self._complete: dict[tuple[bool, ...], str] = {}
        self._jobs: OrderedDict[Any, Any] = OrderedDict()
        self.in_step = False
        """Whether all workers are in the same iteration, since something else is exchanged that all wait for."""
        self._rested = (-1, -1)
        """Of the launch that waited last for somebody at rest its number, and how often all had met then: until they
        meet again nothing comes of it, and asking in each iteration would take its time."""

    # --- for control, in each iteration

    def lands(self, t: int, most: int) -> bool:
        """Whether the flight lands in iteration `t`. Waits only for one that is `most` iterations old."""
        self.look()
        self.landing, flight = None, self.flight
        if flight is None:
            return False
        if most and t - flight.t >= most and flight.stage in (Stage.OFFERED, Stage.UNDER_WAY):
            begun = time.monotonic()
            try:
                self._wait(flight)
            finally:
                self.counts.exposed_seconds += time.monotonic() - begun
        if flight.stage is Stage.DROPPED:
            self._drop(flight, t)
        elif flight.stage is Stage.ARRIVED:
            self._land(flight)
        return self.landing is not None

    def launch(self, t: int, rounds: Mapping[int, int]) -> int:
        """Begin a launch in iteration `t`, and return its number."""
        number, self.launches = self.launches, self.launches + 1
        made = {(transfer, site.number) for transfer in self.transfers for site in self.sites}
        self.flight = Flight(number, t, {**rounds, self.block: number}, missing=made)
        self.counts.launches += 1
        self.note("launch", self, self.flight, t)
        return number

    @property
    def free(self) -> bool:
        """Whether a launch may begin: none is under way, and none lands in this iteration."""
        return self.flight is None and self.landing is None

    @property
    def landed_from(self) -> int:
        """The iteration that launched what lands in this one."""
        assert self.landing is not None
        return self.landing.t

    def own_weight(self, transfer: int, rank: int) -> float:
        """Of what lands in this iteration, or leaves."""
        flight = self.landing or self.flight
        meeting = flight.meetings.get(transfer) if flight is not None else None
        return dict(zip(meeting.sources, meeting.weights, strict=True))[rank] if meeting is not None else 0.5

    # --- what the launching iteration makes

    def open(self, transfer: int) -> Callable[[Site], None]:
        """Make room for the messages of a transfer. What is returned is called for each site whose messages are
        there."""
        for site in self.sites:
            self._traffic.place(site, transfer, None, self._partners[transfer].own)

        def made(site: Site) -> None:
            assert self.flight is not None
            self.flight.missing.discard((transfer, site.number))

        return made

    def stage_done(self, stage: str, path: PathPlan) -> None:
        """A stage of an iteration on `path` is over: offer the launch where all that it needs is there."""
        if self.flight is not None and self.flight.stage is Stage.MADE and stage == self.completes(path):
            self._offer(self.flight)

    def completes(self, path: PathPlan) -> str:
        """The stage of a launching path behind which nothing of the launch is left; `commit` where numbers are taken
        along, since they may be read as late as in the optimiser's step."""
        if path.guards not in self._complete:
            last = [name for name, operations in path.stages.items() if any(map(self._makes, operations))]
            takes = any(block == self.block for block, _, _ in path.captures)
            self._complete[path.guards] = "commit" if takes or not last else max(last, key=STAGES.index)
        return self._complete[path.guards]

    def _makes(self, operation: Any) -> bool:
        if operation.kind == "start":
            return operation.number in self.transfers
        if operation.kind != "compute":
            return False
        fragment = self._program.fragments[operation.number]
        return fragment.sends in self.transfers or any(name in self._late for name in fragment.writes)

    def _offer(self, flight: Flight) -> None:
        assert not flight.missing, "a launch is offered before it is encoded"
        flight.stage, flight.since = Stage.OFFERED, time.monotonic()
        crew, neighbours = self._who(flight.number)
        self.matchmaker.offer(
            Offer(self.name, flight.number, lambda match: self._begin(flight, match), crew, neighbours)
        )

    def _who(self, number: int) -> tuple[tuple[int, ...] | None, tuple[int, ...]]:
        """Who must have launched this number, or whose launch will do."""
        ready = [p.ready for p in (self._partners[t] for t in self.transfers) if p.ready is not None]
        if ready:
            return None, ready[0]
        together: set[int] = set()
        for transfer in self.transfers:
            together |= set(self._partners[transfer].together(number))
        return tuple(sorted(together)), ()

    # --- the matchmaker's thread

    def _begin(self, flight: Flight, match: Match) -> None:
        flight.peers = match.peers
        flight.stage = Stage.UNDER_WAY
        self.counts.waiting_seconds += time.monotonic() - flight.since
        living = {rank for rank, _ in match.peers} | {self._partners[0].rank}
        for transfer in self.transfers:
            meeting = self._partners[transfer].among(flight.number, living)
            if meeting is None:
                flight.why, flight.stage = "everyone", Stage.DROPPED
                return
            flight.meetings[transfer] = meeting
            flight.jobs.append(self._start(flight, transfer, meeting, match.tag))
        end = time.monotonic() + self.matchmaker.crew.timeout
        self.matchmaker.watch(lambda: self._look(flight, end))

    def _start(self, flight: Flight, transfer: int, meeting: Meeting, tag: int) -> Any:
        job = self._job(transfer, meeting)
        self.operations.start(job, flight.number, list(meeting.weights) or None, tag=tag)
        return job

    def _job(self, transfer: int, meeting: Meeting) -> Any:
        links = [self._traffic.link(site, transfer, meeting, 0) for site in self.sites]
        self._traffic.predicted_bytes += sum(link.schedule.sent_bytes for link in links)
        key = (transfer, meeting)
        if key not in self._jobs:
            self._jobs[key] = self.operations.job([piece for link in links for piece in link.pieces])
            if len(self._jobs) > JOBS:
                self._jobs.popitem(last=False)
        self._jobs.move_to_end(key)
        return self._jobs[key]

    def _look(self, flight: Flight, end: float) -> bool:
        """Whether it must be looked at again."""
        failure = next(filter(None, (self.operations.failure(job) for job in flight.jobs)), None)
        if failure is not None:
            self._lost(flight, failure)
            return False
        if all(self.operations.over(job) for job in flight.jobs):
            flight.stage = Stage.ARRIVED
            return False
        crew = self.matchmaker.crew
        dead = [rank for rank, _ in flight.peers if rank in crew.dead]
        if dead or time.monotonic() > end:
            for rank in [] if dead else self._silent(flight):
                crew.bury(rank)
            for job in flight.jobs:
                self.operations.give_up(job)
        return True

    def _silent(self, flight: Flight) -> list[int]:
        """Those whose messages did not come within the timeout: where there is one partner, that one."""
        return [rank for rank, _ in flight.peers] if len(flight.peers) == 1 else []

    def _lost(self, flight: Flight, failure: tuple[int, int, str]) -> None:
        _bucket, peer, why = failure
        crew = self.matchmaker.crew
        if peer >= 0 and why not in ("given up", "aborted") and peer not in crew.dead:
            crew.bury(peer)
        for job in flight.jobs:
            self.operations.give_up(job)
        flight.why, flight.stage = why, Stage.DROPPED

    # --- where it ends

    def _land(self, flight: Flight) -> None:
        self.landing, self.flight = flight, None
        for transfer, job in zip(self.transfers, flight.jobs, strict=True):
            self.operations.over(job)  # asked on this thread, whose stream then comes behind the messages
            for site in self.sites:
                self._traffic.place(site, transfer, job, flight.meetings[transfer])

    def landed(self, t: int, event: str = "land") -> None:
        """Iteration `t` is over, and so is what has landed in it."""
        flight, self.landing = self.landing, None
        if flight is not None:
            self.counts.landed += 1
            self.counts.staleness = max(self.counts.staleness, t - flight.t)
            self.note(event, self, flight, t)

    def begin_anew(self) -> None:
        """The iteration that has begun has not: what would have landed in it has not, and what it was launching
        neither."""
        if self.landing is not None:
            self.flight, self.landing = self.landing, None
        if self.flight is not None and self.flight.stage is Stage.MADE:
            self.forget(withdraw=True)

    def _drop(self, flight: Flight, t: int) -> None:
        """Its messages may still be written to by what has failed: they are never used again."""
        self.flight = None
        self.counts.dropped += 1
        self.note("drop", self, flight, t)
        self._jobs.clear()
        for transfer in self.transfers:
            for site in self.sites:
                self._traffic.renew(site, transfer)
        if self.whole:
            lost = ", ".join(map(str, sorted(self._missing()))) or f"nobody knows whom ({short(flight.why)})"
            raise ExchangeError(
                "RX0622", f"rank {self._partners[0].rank}: a mean or sum of all workers, launch {flight.number} of "
                f"block {self.block}, can't go on without those that were lost: {lost}", RESTART,
            )  # fmt: skip

    def _missing(self) -> set[int]:
        """Who is lost, where no message of its own has told: nobody hears of it any more."""
        maker = self.matchmaker
        if maker.crew.dead:
            return maker.crew.dead
        try:
            before = maker.step(maker.crew.beats)
            time.sleep(2.5 * BEAT)
            now = maker.step(maker.crew.beats)
            silent = {rank for rank, count in before.items() if now[rank] == count}
            maker.step(lambda: maker.crew.bury_all(silent))
        except RuntimeError:  # the host of the store has ended already, with the same error
            return set()
        return silent

    @property
    def whole(self) -> bool:
        """Whether some exchange needs everyone."""
        return any(self._program.transfers[n].exchange.kind != "mix" for n in self.transfers)

    def forget(self, withdraw: bool) -> None:
        """The flight counts no more; `withdraw`: its number will be used again."""
        flight, self.flight, self.landing = self.flight, None, None
        if flight is not None and withdraw:
            self.launches = flight.number

    # --- waiting

    def wait(self) -> None:
        """Until what is under way has arrived, or is dropped."""
        flight = self.flight
        while flight is not None and flight.stage is Stage.UNDER_WAY:
            self._watch.on_wait(0.0)
            self.matchmaker.hurry()
            self.look()
            time.sleep(0.001)

    def _wait(self, flight: Flight) -> None:
        """Not for those that are at rest, in consensus() or at the end of their loop: they launch nothing any more.
        Nor, where all are in step, for a launch that is still to come: it may stand behind an exchange that waits for
        this worker."""
        maker, begun = self.matchmaker, time.monotonic()
        if flight.stage is Stage.OFFERED and self._rested == (flight.number, maker.crew.met):
            return
        if flight.stage is Stage.OFFERED and self.in_step and not self._all_launched(flight):
            return
        crew, neighbours = self._who(flight.number)
        others = [r for r in crew or neighbours if r != self._partners[0].rank]
        asked = begun
        while flight.stage in (Stage.OFFERED, Stage.UNDER_WAY):
            self._watch.on_wait(0.0)
            self.matchmaker.hurry()
            self.look()
            now = time.monotonic()
            if flight.stage is Stage.OFFERED and now - asked > ASK_EVERY:
                asked = now
                if maker.step(lambda: maker.crew.rests(others)):
                    self._rested = (flight.number, maker.crew.met)
                    return
            if now - begun > maker.crew.timeout:
                raise ExchangeError(
                    "RX0623", f"rank {self._partners[0].rank}: launch {flight.number} of block {self.block} has waited "
                    f"for rank {', '.join(map(str, others))} until the timeout, and may not become older", RESTART,
                )  # fmt: skip
            time.sleep(0.001)

    def _all_launched(self, flight: Flight) -> bool:
        crew, neighbours = self._who(flight.number)
        offer = Offer(self.name, flight.number, lambda _match: None, crew, neighbours)
        return bool(self.matchmaker.step(lambda: self.matchmaker.all_launched(offer)))

    def look(self) -> None:
        """Raise what ends the run: the loss of the store, or of this worker's place among the others."""
        maker = self.matchmaker
        if maker.crew.rank in maker.crew.dead:
            raise given_up(maker.crew.rank)
        since = maker.waits_since
        silent = since is not None and time.monotonic() - since > maker.crew.timeout
        if maker.error is None and not silent:
            return
        if isinstance(maker.error, ExchangeError) or not (silent or isinstance(maker.error, RuntimeError)):
            assert maker.error is not None
            raise maker.error
        how = "does not answer" if maker.error is None else "is gone"
        raise store_lost(maker.crew.rank, how)


def store_lost(rank: int, how: str) -> ExchangeError:
    return ExchangeError(
        "RX0604", f"rank {rank}: partners can't be found: the host of the store (rank 0, or torchrun's agent) {how}",
        RESTART,
    )  # fmt: skip


def _tell_nobody(event: str, lane: Lane, flight: Flight, t: int) -> None:
    return None
