"""Who meets whom in a round of an exchange, as this worker sees it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from relaxc.manifest import ExchangePlan
from relaxc.topology.kinds import changes, met, neighbours
from relaxc.topology.topology import Topology, from_plain
from relaxc.topology.weights import own_weight, receivers, weights
from relaxc.wire.routes import WEIGHTED


@dataclass(frozen=True)
class Meeting:
    """`targets` are sent to; `sources` are summed, in rank order, oneself included, each with its weight (a relay
    has none). All empty for a mean or a sum, which is over everyone."""

    targets: tuple[int, ...] = ()
    sources: tuple[int, ...] = ()
    weights: tuple[float, ...] = ()


EVERYONE = Meeting()


class Partners:
    """The meetings of one exchange. `changing` tells that they differ between rounds. `ready` are the neighbours of
    which one is met, whoever is ready; None where partners follow from the round."""

    def __init__(self, exchange: ExchangePlan, workers: int, rank: int, seed: int) -> None:
        self._weighted = exchange.kind in WEIGHTED
        self._topology = None if exchange.topology is None else from_plain(exchange.topology)
        self._coordinates = workers, rank, seed
        self.rank = rank
        self.changing = self._topology is not None and changes(self._topology)
        self.ready: tuple[int, ...] | None = None
        if self._topology is not None and met(self._topology):
            self.ready = neighbours(self._topology, workers, rank)

    def round_of(self, round: int) -> int:
        """The round, where it makes a difference."""
        return round if self.changing else 0

    def meet(self, round: int) -> Meeting:
        if self._topology is None:
            return EVERYONE
        meeting = _meet(self._topology, self.round_of(round), *self._coordinates)
        return meeting if self._weighted else replace(meeting, weights=())

    @property
    def own(self) -> Meeting:
        """What is encoded before it is known whom one meets."""
        return EVERYONE if self._topology is None else Meeting((), (self.rank,), (1.0,))

    def together(self, round: int) -> frozenset[int]:
        """All that must be there for this worker's part of a round to end: who meets those whom it meets, and so on."""
        if self._topology is None:
            return frozenset(range(self._coordinates[0]))
        workers, rank, seed = self._coordinates
        return _component(self._topology, self.round_of(round), workers, rank, seed)

    def among(self, round: int, living: Collection[int]) -> Meeting | None:
        """The meeting with those that are left: whoever is not among them leaves its weight to the worker itself. None
        where nothing is left of the exchange's meaning, as of a mean."""
        workers = self._coordinates[0]
        if self.ready is not None:
            peers = [r for r in living if r != self.rank]
            found = sorted((self.rank, *peers))
            return Meeting(tuple(peers), tuple(found), (1 / len(found),) * len(found))
        if self._topology is None:
            return EVERYONE if len(living) == workers else None
        meeting = self.meet(round)
        lost = sum(w for r, w in zip(meeting.sources, meeting.weights, strict=True) if r not in living)
        if lost == 0 and set(meeting.targets) <= set(living):
            return meeting
        kept = [(r, w + lost * (r == self.rank)) for r, w in zip(meeting.sources, meeting.weights, strict=True)
                if r in living]  # fmt: skip
        targets = tuple(r for r in meeting.targets if r in living)
        return Meeting(targets, tuple(r for r, _ in kept), tuple(w for _, w in kept))


@lru_cache(maxsize=1024)
def _component(topology: Topology, round: int, workers: int, rank: int, seed: int) -> frozenset[int]:
    near: dict[int, set[int]] = {r: set() for r in range(workers)}
    for r in range(workers):
        for peer, _ in weights(topology, workers, round, seed, r):
            near[r].add(peer)
            near[peer].add(r)
    found, open_ = {rank}, [rank]
    while open_:
        new = near[open_.pop()] - found
        found |= new
        open_ += sorted(new)
    return frozenset(found)


@lru_cache(maxsize=1024)
def _meet(topology: Topology, round: int, workers: int, rank: int, seed: int) -> Meeting:
    row = weights(topology, workers, round, seed, rank)
    targets = receivers(topology, workers, round, seed, rank)
    return Meeting(targets, tuple(peer for peer, _ in row), tuple(weight for _, weight in row))


class OwnWeights:
    """What `own.N` stands for: a worker's weight on itself, in the round of a block."""

    def __init__(self, owns: Sequence[tuple[Any, int]], workers: int, rank: int, seed: int) -> None:
        self._owns = [(from_plain(topology), block) for topology, block in owns]
        self._workers, self._rank, self._seed = workers, rank, seed

    def __call__(self, name: str, rounds: Mapping[int, int]) -> float:
        topology, block = self._owns[int(name.removeprefix("own."))]
        return own_weight(topology, self._workers, rounds[block], self._seed, self._rank)
