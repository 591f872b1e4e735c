"""Who meets whom in a round of an exchange, as this worker sees it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from relaxc.manifest import ExchangePlan
from relaxc.topology.kinds import changes
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
    """The meetings of one exchange. `changing` tells that they differ between rounds."""

    def __init__(self, exchange: ExchangePlan, workers: int, rank: int, seed: int) -> None:
        self._weighted = exchange.kind in WEIGHTED
        self._topology = None if exchange.topology is None else from_plain(exchange.topology)
        self._coordinates = workers, rank, seed
        self.changing = self._topology is not None and changes(self._topology)

    def round_of(self, round: int) -> int:
        """The round, where it makes a difference."""
        return round if self.changing else 0

    def meet(self, round: int) -> Meeting:
        if self._topology is None:
            return EVERYONE
        meeting = _meet(self._topology, self.round_of(round), *self._coordinates)
        return meeting if self._weighted else replace(meeting, weights=())


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
