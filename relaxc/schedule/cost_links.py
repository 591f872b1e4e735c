"""How much a worker sends in an exchange, over which links, and how long that takes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from relaxc.manifest import ExchangePlan
from relaxc.schedule.neighbours import Moved, is_gathered, told
from relaxc.schedule.network import Line, Network
from relaxc.schedule.routed import layout_of
from relaxc.topology.kinds import met
from relaxc.topology.topology import Topology, from_plain
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import TRIPS_LEG, Phase, Send, route_of


@dataclass(frozen=True, slots=True)
class Links:
    """Seconds until nothing has been sent, and for each byte of the codes, and of the plain numbers, of all that is
    exchanged."""

    fixed: float
    coded: float
    exact: float = 0.0


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
    rounds = [[(rank, peer) for rank, peers in enumerate(round) for peer in peers] for round in told(topology, workers)]
    return Links(
        legs * max(network.between(*moved).fixed for round in rounds for moved in round),
        max(_busiest(round, network) for round in rounds),
    )


def _busiest(moved: Sequence[Moved], network: Network) -> float:
    """Seconds for a byte of each message: of the sender whose links are slowest, within its machine and, with all
    others of that, out of it."""
    inside, outside = defaultdict[int, float](float), defaultdict[int, float](float)
    for sender, receiver in moved:
        each = network.between(sender, receiver).each
        if _shares_link(sender, receiver, network):
            outside[sender // network.per_machine] += each
        else:
            inside[sender] += each
    return max((inside[sender] + outside[sender // network.per_machine] for sender, _ in moved), default=0.0)


def _shares_link(sender: int, receiver: int, network: Network) -> bool:
    apart = sender // network.per_machine != receiver // network.per_machine
    return apart and network.per_machine > 1 and (sender, receiver) not in network.pairs


@cache
def _phases(route: str, workers: int, rank: int) -> tuple[Phase, ...]:
    return route_of(route).phases(rank, workers)


def _routed_links(route: str, workers: int, network: Network) -> Links:
    """Of the workers of one machine, as those of all do the same; of all where links differ. Phases are in step: the
    longest latency of each counts."""
    ranks = range(workers if network.pairs else min(network.per_machine, workers))
    phases = {rank: _phases(route, workers, rank) for rank in ranks}
    fixed = sum(
        max((network.between(rank, move.peer).fixed for rank in ranks for move in _sends(phases[rank][n : n + 1])),
            default=0.0)
        for n in range(max(map(len, phases.values())))
    )  # fmt: skip
    sends = [(rank, move) for rank, of in phases.items() for move in _sends(of)]
    coded, exact = (
        _busiest([(rank, move.peer) for rank, move in sends if move.message.exact == kind], network) / workers
        for kind in (False, True)
    )
    return Links(fixed, coded, exact)


def _sends(phases: Sequence[Phase]) -> list[Send]:
    return [move for phase in phases for move in phase if isinstance(move, Send)]


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
