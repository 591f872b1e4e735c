"""Who tells whom in an exchange."""

from __future__ import annotations

from functools import cache

from relaxc.manifest import ExchangePlan
from relaxc.topology.kinds import met, pattern, rows
from relaxc.topology.topology import Topology
from relaxc.wire.routes import gathers

Moved = tuple[int, int]
"""Sender and receiver of a message."""


def is_gathered(exchange: ExchangePlan) -> bool:
    return exchange.kind == "relay" or gathers(exchange.kind, exchange.coded, exchange.route)


@cache
def degrees(topology: Topology, workers: int) -> tuple[int, int]:
    """From how many others a worker hears in a round, and how many hear it, at most."""
    if met(topology):
        return 1, 1
    rounds = told(topology, workers)
    most_told = max(len(peers) for round in rounds for peers in round)
    heard = max(sum(rank in peers for peers in round) for round in rounds for rank in range(workers))
    return heard, most_told


@cache
def told(topology: Topology | None, workers: int) -> tuple[tuple[frozenset[int], ...], ...]:
    """By round and worker, whom it sends to: everyone, where there is no topology."""
    if topology is None:
        everyone = frozenset(range(workers))
        return (tuple(everyone - {rank} for rank in range(workers)),)
    rounds = []
    for number in range(pattern(topology, workers)):
        of_round: list[set[int]] = [set() for _ in range(workers)]
        for rank, row in enumerate(rows(topology, workers, number, 0)):
            for peer, _ in row:
                of_round[peer] |= {rank} - {peer}
        rounds.append(tuple(map(frozenset, of_round)))
    return tuple(rounds)
