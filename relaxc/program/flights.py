"""What an `after async` has under way, for whoever carries a program out: launches, who has launched, what arrives.

A program with these is a relation: when something arrives, and who meets whom under ready_pairs, is not in its text.
`Arrivals` answers that; with the same answers everything is the same to the bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from relaxc.program.exchange import Code, Occurrence, Residuals, received, run_exchange
from relaxc.program.functions import Array
from relaxc.program.ir import Exchange, Expression
from relaxc.topology.kinds import met, neighbours, pair_row
from relaxc.topology.weights import weights
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import WEIGHTED

ARRIVES = "arrives."
"""`arrives.P` stands for what the exchange of place P brings."""
LAND, DROP, WAIT, STAY = "land", "drop", "", "stay"

Peers = tuple[tuple[int, int], ...]
"""(rank, its round) of those that an exchange is with, this worker not among them."""


@dataclass(frozen=True)
class Flight:
    """A launch of one worker for one parameter, of the `after async` of number `block`. `since` is the iteration of the
    launch, `neighbours` whom it may meet where partners find each other."""

    worker: int
    body: int
    parameter: int
    block: int
    round: int
    since: int
    neighbours: tuple[int, ...] = ()


class Arrivals(Protocol):
    def launched(self, flight: Flight) -> None:
        """A worker has launched."""

    def outcome(self, flight: Flight, iteration: int, there: bool) -> str:
        """Asked once in each iteration in which a launch is under way: LAND, DROP or WAIT; STAY where it waits longer
        than it may, for somebody who is at rest. `there` tells whether all that it is with have launched."""

    def peers(self, flight: Flight) -> Peers | None:
        """Whom a launch with `neighbours` has met; None while it waits."""


@dataclass(frozen=True)
class Awaited:
    """A let that is known at the landing only: over what it reads of the launch, and what arrives."""

    name: str
    value: Expression
    numbers: Mapping[str, float]
    tensors: Mapping[str, Array]


@dataclass
class Aloft:
    """A flight with what its landing has of its launch: the worker's lets, and those that are still awaited."""

    flight: Flight
    lets: dict[str, Any]
    awaited: list[Awaited]


Key = tuple[int, int, int, int]
"""(place, parameter, worker, round)"""


@dataclass
class Post:
    """What all workers have put into asynchronous exchanges, and results that are for everyone. One for all who take
    part; `unread` are those that have yet to read a contribution, or a result."""

    workers: int
    seed: int
    sent: dict[Key, Code | Array] = field(default_factory=dict)
    results: dict[tuple[int, int, int], list[Array]] = field(default_factory=dict)
    unread: dict[tuple[int, ...], set[int]] = field(default_factory=dict)
    cells: set[int] = field(default_factory=set)
    """Places at which one number of a parameter is exchanged."""

    def put(self, this: Occurrence, worker: int) -> None:
        """A contribution is encoded when it is launched, with what was lost before; `this.iteration` is the round."""
        key = (this.exchange.place, this.parameter.number, worker, this.iteration)
        self.sent[key] = this.contribution(worker) if this.gathers else this.tensor(worker)

    def row(self, exchange: Exchange, worker: int, round: int, peers: Peers | None) -> Sequence[tuple[int, float]]:
        """Whom a worker hears, with which weight."""
        if exchange.topology is None:
            return [(w, 1.0) for w in range(self.workers)]
        if met(exchange.topology):
            return pair_row(worker, peers[0][0]) if peers else ((worker, 1.0),)
        return weights(exchange.topology, self.workers, round, self.seed, worker)

    def is_there(self, exchange: Exchange, parameter: int, worker: int, round: int, peers: Peers | None) -> bool:
        if exchange.topology is not None and met(exchange.topology) and peers is None:
            return False
        at = dict(peers or ())
        heard = self.row(exchange, worker, round, peers)
        return all((exchange.place, parameter, w, at.get(w, round)) in self.sent or
                   (exchange.place, parameter, round) in self.results for w, _ in heard)  # fmt: skip

    def arrived(
        self, exchange: Exchange, parameter: Parameter, flight: Flight, peers: Peers | None, residuals: Residuals
    ) -> Array:
        """What a worker receives. Raise ValueError where someone has not launched yet."""
        if not self.is_there(exchange, parameter.number, flight.worker, flight.round, peers):
            raise ValueError(f"worker {flight.worker} lands round {flight.round} of what not all have launched")
        row = self.row(exchange, flight.worker, flight.round, peers)
        at = dict(peers or ())
        keys = {w: (exchange.place, parameter.number, w, at.get(w, flight.round)) for w, _ in row}
        mine = self.sent.get(keys[flight.worker])
        if exchange.kind in WEIGHTED or isinstance(mine, Code):
            values: list[Any] = [mine] * self.workers
            for w, key in keys.items():
                values[w] = self.sent[key]
            this = Occurrence(exchange, values, residuals, parameter, self.seed, flight.round, [row] * self.workers)
            result = received(this, flight.worker)
            for w, key in keys.items():
                self._read(key, flight.worker, self._hearers(exchange, w, key[3], keys))
            return result
        return self._common(exchange, parameter, flight, keys, residuals)

    def _common(
        self, exchange: Exchange, parameter: Parameter, flight: Flight, keys: Mapping[int, Key], residuals: Residuals
    ) -> Array:
        """A mean or sum that is the same for all is taken once."""
        at = (exchange.place, parameter.number, flight.round)
        if at not in self.results:
            values = [self.sent.pop(keys[w]) for w in range(self.workers)]
            self.results[at] = run_exchange(
                Occurrence(exchange, values, residuals, parameter, self.seed, flight.round)
            )  # fmt: skip
        result = self.results[at][flight.worker]
        unread = self.unread.setdefault(at, set(range(self.workers)))
        unread.discard(flight.worker)
        if not unread:
            del self.results[at], self.unread[at]
        return result

    def _hearers(self, exchange: Exchange, worker: int, round: int, pair: Mapping[int, Key]) -> set[int]:
        if exchange.topology is None:
            return set(range(self.workers))
        if met(exchange.topology):
            return set(pair)
        rows = (weights(exchange.topology, self.workers, round, self.seed, w) for w in range(self.workers))
        return {w for w, row in enumerate(rows) if worker in dict(row)}

    def _read(self, key: Key, reader: int, hearers: set[int]) -> None:
        unread = self.unread.setdefault(key, hearers)
        unread.discard(reader)
        if not unread:
            del self.sent[key], self.unread[key]


def met_neighbours(exchanges: Sequence[Exchange], workers: int, worker: int) -> tuple[int, ...]:
    """Whom a launch of these may meet; nobody where partners are known."""
    for e in exchanges:
        if e.topology is not None and met(e.topology):
            return neighbours(e.topology, workers, worker)
    return ()


@dataclass
class Prompt:
    """Arrivals without a clock: what everyone has launched lands in the first iteration that is `late` behind the
    launch, or later. Who waits meets the waiting neighbour that comes first behind it, in an order that turns."""

    late: int = 1
    waiting: dict[tuple[int, int, int], dict[int, Flight]] = field(default_factory=dict)
    pairs: dict[tuple[int, int, int, int], Peers] = field(default_factory=dict)
    """By parameter, block, worker and round."""

    def launched(self, flight: Flight) -> None:
        if flight.neighbours:
            self.waiting.setdefault((flight.body, flight.parameter, flight.block), {})[flight.worker] = flight

    def outcome(self, flight: Flight, iteration: int, there: bool) -> str:
        return LAND if there and iteration - flight.since >= self.late else WAIT

    def peers(self, flight: Flight) -> Peers | None:
        key = (flight.parameter, flight.block, flight.worker, flight.round)
        if key not in self.pairs:
            self._match(flight)
        return self.pairs.get(key)

    def _match(self, flight: Flight) -> None:
        waiting = self.waiting[flight.body, flight.parameter, flight.block]
        first = flight.round % len(flight.neighbours)
        for peer in (*flight.neighbours[first:], *flight.neighbours[:first]):
            if (other := waiting.get(peer)) is not None:
                for one, partner in ((flight, other), (other, flight)):
                    del waiting[one.worker]
                    key = (one.parameter, one.block, one.worker, one.round)
                    self.pairs[key] = ((partner.worker, partner.round),)
                return
