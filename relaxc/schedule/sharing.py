"""How many messages share the link of a machine with a worker's own: those that all its workers send out of it, or are
sent, at the same time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from relaxc.manifest import ExchangePlan
from relaxc.schedule.neighbours import Moved, is_gathered, told
from relaxc.topology.kinds import met
from relaxc.topology.topology import Topology, from_plain
from relaxc.wire.routes import Receive, Send, route_of


@dataclass(frozen=True, slots=True)
class Sharing:
    """Messages of a machine for each of the worker's own."""

    out: float = 1.0
    into: float = 1.0


ALONE = Sharing()


def sharing_of(exchange: ExchangePlan | None, workers: int, rank: int, per_machine: int) -> Sharing:
    """Without an exchange, of what everyone tells everyone. Raise KeyError for a route that is none."""
    if per_machine == 1:
        return ALONE
    if exchange is None:
        return _gathered(None, workers, rank, per_machine)
    if not is_gathered(exchange):
        return _routed(exchange.route, workers, rank, per_machine)
    return _gathered(None if exchange.topology is None else from_plain(exchange.topology), workers, rank, per_machine)


@cache
def _routed(route: str, workers: int, rank: int, per_machine: int) -> Sharing:
    return _shared(list(_moved(route, workers, _machine(rank, workers, per_machine))), rank, per_machine)


def _moved(route: str, workers: int, ranks: Sequence[int]) -> Iterator[Moved]:
    """What workers of one machine send and receive."""
    for rank in ranks:
        for move in (move for phase in route_of(route).phases(rank, workers) for move in phase):
            if isinstance(move, Send):
                yield rank, move.peer
            elif isinstance(move, Receive):
                yield move.peer, rank


@cache
def _gathered(topology: Topology | None, workers: int, rank: int, per_machine: int) -> Sharing:
    """Who is drawn to meet is taken to be on another machine."""
    if topology is not None and met(topology):
        return Sharing(min(per_machine, workers), min(per_machine, workers))
    rounds = told(topology, workers)
    moved = [(sender, peer) for round in rounds for sender, peers in enumerate(round) for peer in peers]
    return _shared(moved, rank, per_machine)


def _machine(rank: int, workers: int, per_machine: int) -> range:
    first = rank // per_machine * per_machine
    return range(first, min(first + per_machine, workers))


def _shared(moved: Sequence[Moved], rank: int, per_machine: int) -> Sharing:
    machine = rank // per_machine
    across = [(s, r) for s, r in moved if s // per_machine != r // per_machine]
    out, into = ([m for m in across if m[end] // per_machine == machine] for end in (0, 1))
    mine_out, mine_in = sum(s == rank for s, _ in out), sum(r == rank for _, r in into)
    return Sharing(len(out) / mine_out if mine_out else 1.0, len(into) / mine_in if mine_in else 1.0)
