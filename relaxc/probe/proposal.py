"""Which topology suits links that differ: along the fast ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, permutations
from math import sqrt

from relaxc.probe.assemble import MESSAGE
from relaxc.schedule.network import Network
from relaxc.units import shown_time

TWICE = 2.0
ALL_ORDERS_UP_TO = 8
Order = Sequence[int]


def propose(network: Network, workers: int) -> list[str]:
    """Lines for people; none where no two links differ by more than 2x."""
    cost = costs(network, workers)
    links = {(i, j): cost[i][j] for i in range(workers) for j in range(i)}
    if len(links) < 2 or max(links.values()) <= TWICE * min(links.values()):
        return []
    slow, fast = (pick(links, key=links.__getitem__) for pick in (max, min))
    quick = f"a message of {MESSAGE >> 10} KB takes {shown_time(links[fast])} between workers {fast[1]} and {fast[0]}"
    said = [f"{quick}, and {shown_time(links[slow])} between {slow[1]} and {slow[0]}"]
    inner = runs(cost)
    return said + (_hierarchy(inner) if inner else _ring(cost))


def costs(network: Network, workers: int) -> list[list[float]]:
    """Seconds of a message between each two, the slower way."""
    one = [[0.0 if i == j else network.between(i, j).at(MESSAGE) for j in range(workers)] for i in range(workers)]
    return [[max(one[i][j], one[j][i]) for j in range(workers)] for i in range(workers)]


def runs(cost: Sequence[Sequence[float]]) -> int:
    """The n for which the fast links are those within runs of n workers; 0 where there is none."""
    workers = len(cost)
    links = [cost[i][j] for i in range(workers) for j in range(i)]
    border = sqrt(min(links) * max(links))
    for inner in (n for n in range(2, workers) if workers % n == 0):
        if all((cost[i][j] < border) == (i // inner == j // inner) for i in range(workers) for j in range(i)):
            return inner
    return 0


def _hierarchy(inner: int) -> list[str]:
    return [
        f"the fast links are those within each {inner} workers in a row, so they should carry most of what is sent:",
        f"  route = hierarchy(inner = {inner}) for a mean, topology = hierarchy(ring, inner = {inner}) for a mix",
    ]


def _ring(cost: Sequence[Sequence[float]]) -> list[str]:
    order = best_ring(cost)
    here, there = slowest(range(len(cost)), cost), slowest(order, cost)
    if len(cost) < 4:
        return ["a ring of so few workers has all links"]
    if there > 0.9 * here:
        return [
            f"no ring avoids the slow links: topology = ring in rank order is as good, {shown_time(here)} a message"
        ]
    edges = [f"  {a} {b}" for a, b in pairwise([*order, order[0]])]
    ring = f"the slowest link of a ring in rank order takes {shown_time(here)} a message"
    return [
        f"{ring}; in the order {' '.join(map(str, order))} it takes {shown_time(there)}:",
        '  topology = edges("ring.edges"), with these lines in ring.edges:',
        *edges,
    ]


def slowest(order: Order, cost: Sequence[Sequence[float]]) -> float:
    return max(cost[a][b] for a, b in pairwise([*order, order[0]]))


def best_ring(cost: Sequence[Sequence[float]]) -> tuple[int, ...]:
    """The ring whose slowest link is fastest, and of those the one that is fastest in all. Among many workers it is
    found by reversing parts of the ring of nearest neighbours while that helps, which may miss the best."""
    workers = len(cost)
    if workers <= ALL_ORDERS_UP_TO:
        return min(((0, *rest) for rest in permutations(range(1, workers))), key=lambda order: _judged(order, cost))
    order = _nearest(cost)
    while (better := _reversed(order, cost)) is not None:
        order = better
    return order


def _judged(order: Order, cost: Sequence[Sequence[float]]) -> tuple[float, float]:
    links = [cost[a][b] for a, b in pairwise([*order, order[0]])]
    return max(links), sum(links)


def _nearest(cost: Sequence[Sequence[float]]) -> tuple[int, ...]:
    order, left = [0], set(range(1, len(cost)))
    while left:
        order.append(min(left, key=lambda worker: (cost[order[-1]][worker], worker)))
        left.remove(order[-1])
    return tuple(order)


def _reversed(order: tuple[int, ...], cost: Sequence[Sequence[float]]) -> tuple[int, ...] | None:
    """The best ring that reversing one part gives, where it is better."""
    count = len(order)
    tried = (
        (*order[:start], *reversed(order[start:end]), *order[end:])
        for start in range(1, count - 1)
        for end in range(start + 2, count + 1)
    )
    best = min(tried, key=lambda ring: _judged(ring, cost))
    return best if _judged(best, cost) < _judged(order, cost) else None
