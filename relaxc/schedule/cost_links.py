"""How much a worker sends in an exchange, over which links, and how long that takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from relaxc.manifest import ExchangePlan
from relaxc.schedule.network import Line, Network
from relaxc.schedule.routed import layout_of
from relaxc.topology.kinds import met, pattern, rows
from relaxc.topology.topology import Topology, from_plain
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import TRIPS_LEG, Phase, Send, gathers, route_of


@dataclass(frozen=True, slots=True)
class Links:
    """Seconds until nothing has been sent, and for each byte of the codes, and of the plain numbers, of all that is
    exchanged."""

    fixed: float
    coded: float
    exact: float = 0.0


def is_gathered(exchange: ExchangePlan) -> bool:
    return exchange.kind == "relay" or gathers(exchange.kind, exchange.coded, exchange.route)


def links_of(exchange: ExchangePlan, workers: int, network: Network) -> Links:
    if workers == 1:
        return Links(0.0, 0.0)
    if not is_gathered(exchange):
        return _routed_links(exchange.route, workers, network)
    topology = None if exchange.topology is None else from_plain(exchange.topology)
    guarded = exchange.codec is not None and exchange.codec.guarded
    return _gathered_links(topology, workers, network, TRIPS_LEG + 1 if guarded else 1)


def _gathered_links(topology: Topology | None, workers: int, network: Network, legs: int) -> Links:
    """Where codes go to everyone (no topology), or to neighbours. The worst round counts; who is drawn to meet is
    taken to be on another machine."""
    if topology is not None and met(topology):
        worst = network.between(0, workers - 1)
        return Links(legs * worst.fixed, worst.each * network.per_machine)
    everyone = frozenset(range(workers))
    all_told = (tuple(everyone - {rank} for rank in range(workers)),)
    rounds = all_told if topology is None else _told(topology, workers)
    return Links(
        legs * max(network.between(rank, peer).fixed
                   for round in rounds for rank, peers in enumerate(round) for peer in peers),
        max(_busiest(round, network) for round in rounds),
    )  # fmt: skip


def _busiest(told: Sequence[frozenset[int]], network: Network) -> float:
    """Seconds for each byte that everyone sends to those it tells: of the worker whose links are slowest, within its
    machine and, with all others of that, out of it."""
    inside, outside = [0.0] * len(told), [0.0] * len(told)
    for rank, peers in enumerate(told):
        for peer in peers:
            shared = _shares_link(rank, peer, network)
            place = rank // network.per_machine if shared else rank
            (outside if shared else inside)[place] += network.between(rank, peer).each
    return max(inside[rank] + outside[rank // network.per_machine] for rank in range(len(told)))


def _shares_link(sender: int, receiver: int, network: Network) -> bool:
    apart = sender // network.per_machine != receiver // network.per_machine
    return apart and network.per_machine > 1 and (sender, receiver) not in network.pairs


def _routed_links(route: str, workers: int, network: Network) -> Links:
    """Of one worker, as all do the same; of the slowest where links differ."""
    ranks = range(workers) if network.pairs else range(1)
    found = [_sent(route_of(route).phases(rank, workers), rank, workers, network) for rank in ranks]
    return Links(max(f.fixed for f in found), max(f.coded for f in found), max(f.exact for f in found))


def _sent(phases: Sequence[Phase], rank: int, workers: int, network: Network) -> Links:
    fixed, each = 0.0, {False: 0.0, True: 0.0}
    for phase in phases:
        sends = [move for move in phase if isinstance(move, Send)]
        fixed += max((network.between(rank, move.peer).fixed for move in sends), default=0.0)
        for move in sends:
            together = network.per_machine if _shares_link(rank, move.peer, network) else 1
            each[move.message.exact] += network.between(rank, move.peer).each * together / workers
    return Links(fixed, each[False], each[True])


def code_bytes(exchange: ExchangePlan, parameter: Parameter, workers: int) -> int:
    """Of a parameter's whole code."""
    assert exchange.codec is not None
    layout, real = layout_of(exchange.codec), parameter.real_bytes
    owned = [(0, parameter.elements)]
    if not is_gathered(exchange):
        owned = shares(parameter.number, parameter.elements, layout, workers)
    return sum(layout.bytes_of(end - first, real) for first, end in owned if end > first)


def reduce_line(network: Network, workers: int) -> Line:
    """Of an all-reduce, over the bytes of its buffer: measured, or once round the ring and back over its slowest
    link."""
    if workers == 1:
        return Line(0.0, 0.0)
    if network.reduce is not None and network.workers in (None, workers):
        return network.reduce
    links = [network.between(rank, (rank + 1) % workers) for rank in range(workers)]
    hops = 2 * (workers - 1)
    return Line(hops * max(line.fixed for line in links), hops / workers * max(line.each for line in links))


@cache
def degrees(topology: Topology, workers: int) -> tuple[int, int]:
    """From how many others a worker hears in a round, and how many hear it, at most."""
    if met(topology):
        return 1, 1
    rounds = _told(topology, workers)
    told = max(len(peers) for round in rounds for peers in round)
    heard = max(sum(rank in peers for peers in round) for round in rounds for rank in range(workers))
    return heard, told


@cache
def _told(topology: Topology, workers: int) -> tuple[tuple[frozenset[int], ...], ...]:
    """By round and worker, whom it sends to."""
    rounds = []
    for number in range(pattern(topology, workers)):
        told: list[set[int]] = [set() for _ in range(workers)]
        for rank, row in enumerate(rows(topology, workers, number, 0)):
            for peer, _ in row:
                told[peer] |= {rank} - {peer}
        rounds.append(tuple(map(frozenset, told)))
    return tuple(rounds)
