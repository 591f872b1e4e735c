"""The exchanges of programs: messages and jobs, made when they are first needed and kept for the next time."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from relaxc.attach.calls import (
    CODEC_STATE,
    Copies,
    Site,
    coding_call,
    in_message,
    lending_call,
    reads_optimizer,
)
from relaxc.attach.engine import runtime_piece
from relaxc.attach.low_rank import LowRank
from relaxc.attach.partners import Meeting
from relaxc.manifest import TransferPlan
from relaxc.schedule.actions import Action
from relaxc.schedule.pieces import Range
from relaxc.schedule.transfers import Coding, TransferSchedule, schedule_transfer

JOBS = 256
"""Jobs that are remembered: partners drawn anew in each round among many workers would otherwise fill memory."""
Key = tuple[int, int, int]
"""Site, transfer, copy."""


@dataclass(frozen=True)
class Link:
    """One transfer of one site with these partners. `buffers` are by piece; `calls` hold what fragments were bound to
    its messages. `low_rank` makes what is summed, for an exchange that has a rank. Of the pieces `lent` the own message
    is a weight's memory. `near` is by piece what its messages are decoded near to."""

    schedule: TransferSchedule
    meeting: Meeting
    pieces: tuple[Any, ...]
    buffers: tuple[tuple[torch.Tensor, ...], ...]
    calls: dict[Any, list[Any]] = field(default_factory=dict)
    low_rank: LowRank | None = None
    lent: frozenset[int] = frozenset()
    near: tuple[Any, ...] = ()


@dataclass
class _Line:
    """A transfer of a site. Links with other partners use the same messages, so `last`, the job that used them last,
    must be over before they are written again."""

    first_tag: int
    messages: list[list[torch.Tensor]] = field(default_factory=list)
    links: OrderedDict[Any, Link] = field(default_factory=OrderedDict)
    last: Any = None


class Traffic:
    """All exchanges of one attach, in the order in which they are opened."""

    def __init__(self, operations: Any, workers: int, rank: int, piece_bytes: int, few_piece_bytes: int) -> None:
        self._operations, self._workers, self._rank, self._piece_bytes = operations, workers, rank, piece_bytes
        self._few_piece_bytes = few_piece_bytes
        self._lines: dict[tuple[int, int], _Line] = {}
        self._tags: dict[tuple[int, int], int] = {}
        self._jobs: OrderedDict[Any, Any] = OrderedDict()
        self._started: dict[Key, tuple[Any, Link]] = {}
        self._newest: dict[int, tuple[Link, int]] = {}
        """By site, what was opened last, and in which iteration."""
        self.predicted_bytes = 0

    def add(self, site: Site) -> None:
        """Sites are added in order; in a job the next one's tags begin where the last one's end."""
        for number, transfer in enumerate(site.program.transfers):
            tag = self._tags.get((site.bucket.body, number), 0)
            self._lines[site.number, number] = _Line(tag)
            fitted = self._fit(site, transfer, Meeting((), (self._rank,), (1.0,)), tag)
            self._tags[site.bucket.body, number] = fitted.next_tag

    def open(self, sites: Sequence[Site], number: int, meeting: Meeting, copy: int, t: int) -> Any:
        """Start transfer `number` of these sites: each may leave once `ready` is called for it."""
        links = [self.link(site, number, meeting, copy) for site in sites]
        job = self._job(sites, number, meeting, copy, links)
        for site, link in zip(sites, links, strict=True):
            line = self._lines[site.number, number]
            if line.last is not None and line.last is not job:
                self._operations.free(line.last)
            line.last = job
            self._started[site.number, number, copy] = (job, link)
            self._newest[site.number] = link, t
            self.predicted_bytes += link.schedule.sent_bytes
        together = [(site.number, low) for site, link in zip(sites, links, strict=True) if (low := link.low_rank)]
        for _, low_rank in together:
            low_rank.companions = together
        self._operations.start(job, t, list(meeting.weights) or None, held=True)
        return job

    def place(self, site: Site, number: int, job: Any, meeting: Meeting) -> None:
        """From here on fragments use the messages of this meeting: an asynchronous exchange's, whose `job` others
        start."""
        self._started[site.number, number, 0] = (job, self.link(site, number, meeting, 0))

    def renew(self, site: Site, number: int) -> None:
        """Its messages are never used again."""
        self._lines[site.number, number] = _Line(self._lines[site.number, number].first_tag)
        self._started.pop((site.number, number, 0), None)

    def ready(self, job: Any, site: Site) -> None:
        link, t = self._newest[site.number]
        if link.low_rank is not None:
            link.low_rank.begin(t)
        self._operations.ready(job, site.number)

    def wait(self, site: Site, number: int, copy: int) -> None:
        """Until its result is there; at once where it was never started, as after a checkpoint."""
        if (site.number, number, copy) in self._started:
            job, link = self._started[site.number, number, copy]
            self._operations.wait(job, site.number)
            if link.low_rank is not None and link.low_rank.under_way:
                self._second(job, link.low_rank)

    def _second(self, job: Any, low_rank: LowRank) -> None:
        for number, other in low_rank.companions:
            if not other.turned:
                self._operations.wait(job, number)
                other.turn()
                self._operations.start(other.second, other.iteration)
        self._operations.wait(low_rank.second)
        low_rank.end()

    def current(self, site: Site, number: int, copy: int) -> Link:
        """What was opened last."""
        return self._started[site.number, number, copy][1]

    def forget(self) -> None:
        """What was started counts no more."""
        self._operations.drain()
        self._started.clear()

    def encodes(self, site: Site, fragment: int, link: Link, copies: Copies) -> list[Any]:
        return self._calls(site, fragment, link, copies, True)

    def decodes(self, site: Site, fragment: int, link: Link, copies: Copies) -> list[Any]:
        return self._calls(site, fragment, link, copies, False)

    def _calls(self, site: Site, fragment: int, link: Link, copies: Copies, sends: bool) -> list[Any]:
        key = (fragment, *sorted(copies.items()))
        if key not in link.calls or reads_optimizer(site, fragment):
            codings = link.schedule.encodes if sends else link.schedule.decodes
            link.calls[key] = [self._coding(site, fragment, link, coding, copies, sends) for coding in codings]
        return link.calls[key]

    def _coding(self, site: Site, fragment: int, link: Link, coding: Coding, copies: Copies, sends: bool) -> Any:
        taken = [link.buffers[coding.piece][b] for b in coding.buffers]
        if sends and coding.piece in link.lent:
            return lending_call(site, fragment, coding.ranges[0], taken[0])
        if sends:
            return coding_call(site, fragment, coding.ranges, copies, (), taken[0])
        return coding_call(site, fragment, coding.ranges, copies, taken, None, link.near[coding.piece], coding.own)

    def link(self, site: Site, number: int, meeting: Meeting, copy: int) -> Link:
        line = self._lines[site.number, number]
        key = (meeting, copy)
        if key not in line.links:
            line.links[key] = self._make(site, number, meeting, copy)
            if len(line.links) > JOBS:
                line.links.popitem(last=False)
        line.links.move_to_end(key)
        return line.links[key]

    def fitted(self, site: Site, number: int, meeting: Meeting) -> TransferSchedule:
        """What is sent and received, without making any of it."""
        return self._fit(site, site.program.transfers[number], meeting, self._lines[site.number, number].first_tag)

    def _fit(self, site: Site, transfer: TransferPlan, meeting: Meeting, tag: int) -> TransferSchedule:
        return schedule_transfer(
            transfer, site.members, site.number, self._workers, self._rank, self._piece_bytes,
            targets=meeting.targets, sources=meeting.sources, first_tag=tag,
            few_piece_bytes=self._few_piece_bytes,
        )  # fmt: skip

    def _make(self, site: Site, number: int, meeting: Meeting, copy: int) -> Link:
        fitted = self.fitted(site, number, meeting)
        if fitted.dense_bytes and site.program.transfers[number].exchange.rank:
            low_rank = LowRank(site, number, self._workers)
            return Link(fitted, meeting, (site.runtime.Piece(site.number, sums=[low_rank.p]),), (), low_rank=low_rank)
        if fitted.dense_bytes:
            slot = site.memory.slots[number][copy].tensor
            return Link(fitted, meeting, (site.runtime.Piece(site.number, sums=[slot]),), ())
        line, pieces, buffers = self._lines[site.number, number], [], []
        nears = tuple(site.runtime.Near() for _ in fitted.pieces)
        lent = _lent(site, number, fitted)
        for position, piece in enumerate(fitted.pieces):
            held = _messages(line, position, piece.buffers, site.device)
            for buffer in lent.get(position, ()):
                held[buffer] = torch.empty(0, dtype=torch.uint8, device=site.device)

            def call(action: Action, held: list[torch.Tensor] = held) -> Any:
                return _queue_call(site, number, copy, action, held)

            made = runtime_piece(site.runtime, piece, held, call, lent=position in lent, near=nears[position])
            pieces.append(made)
            buffers.append(tuple(held))
        return Link(fitted, meeting, tuple(pieces), tuple(buffers), lent=frozenset(lent), near=nears)

    def _job(self, sites: Sequence[Site], number: int, meeting: Meeting, copy: int, links: Sequence[Link]) -> Any:
        key = (tuple(site.number for site in sites), number, meeting, copy)
        if key not in self._jobs:
            self._jobs[key] = self._operations.job([piece for link in links for piece in link.pieces])
            if len(self._jobs) > JOBS:
                self._operations.free(self._jobs.popitem(last=False)[1])
        self._jobs.move_to_end(key)
        return self._jobs[key]


def _lent(site: Site, number: int, fitted: TransferSchedule) -> dict[int, tuple[int, ...]]:
    """By piece, the buffers that have no memory of their own but a weight's: as it is, in one run."""
    senders = [f for f in site.program.fragments if f.sends == number]
    if not senders or not all(f.lends for f in senders) or site.bucket.dtype not in ("f32", "f64"):
        return {}
    return {c.piece: c.buffers for c in fitted.encodes if len(c.ranges) == 1}


def _messages(line: _Line, piece: int, sizes: Sequence[int], device: torch.device) -> list[torch.Tensor]:
    """Buffers of these sizes; those of the same place and size are used again."""
    while len(line.messages) <= piece:
        line.messages.append([])
    held = line.messages[piece]
    result = []
    for position, size in enumerate(sizes):
        if position == len(held):
            held.append(torch.zeros(size, dtype=torch.uint8, device=device))
        fits = held[position].numel() == size
        result.append(held[position] if fits else torch.zeros(size, dtype=torch.uint8, device=device))
    return result


def _queue_call(site: Site, number: int, copy: int, action: Action, held: Sequence[torch.Tensor]) -> Any:
    """A kernel that the queue runs on the slot of an exchange."""
    exchange, kernel = site.program.transfers[number].exchange, action.kernel
    assert kernel is not None
    plan = site.kernel(exchange.kernels, kernel.name)
    residual = site.memory.residuals[number]
    inputs = [held[i] for i in action.inputs]
    sums = in_message(site.runtime, inputs.pop(), action.ranges, site.bucket.dtype) if kernel.reads_sum else {}

    def find(name: str, range: Range) -> Any:
        if name == "sum":
            return sums[range]
        if name.startswith(CODEC_STATE):
            return site.codec_state(name, number, range)
        flat = site.memory.slots[number][copy] if name == "value" else None
        if name == "residual":
            flat = residual.owner if kernel.owner else residual.worker
        assert flat is not None, f"a route's kernel has no operand {name}"
        return site.buffer(flat, range.parameter, range.first)

    segments = site.segments(plan, action.ranges, find)
    output = held[action.buffer] if action.buffer >= 0 else None
    label = f"relaxc::{kernel.label}/bucket{site.number}"
    return site.operations.call(plan.symbol, label, segments, inputs, output, exchange.place, kernel.owner)
