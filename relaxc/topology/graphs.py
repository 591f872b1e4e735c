"""Graphs as data: who meets whom among `workers` workers, in a round.

An edge (i, j), i < j, is undirected: both hear each other. An arrow (i, j) is directed: i hears j. A worker on no edge
keeps its own value. Sources: Ying et al. 2021 for the two exponential graphs, Bagua for shift_one.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from math import isqrt

from relaxc.wire.draws import permutation

Edge = tuple[int, int]
Edges = tuple[Edge, ...]

PAIRS = 1
"""Tells the draws of random pairs from other draws with the same seed."""


def ring(workers: int) -> Edges:
    return simple((r, (r + 1) % workers) for r in range(workers))


def chain(workers: int) -> Edges:
    return tuple((r, r + 1) for r in range(workers - 1))


def star(workers: int) -> Edges:
    """Worker 0 is the middle."""
    return tuple((0, r) for r in range(1, workers))


def torus_shape(workers: int) -> tuple[int, int]:
    """Rows and columns of the torus that is most nearly square; (1, workers) where there is none, for a prime."""
    rows = next(r for r in range(isqrt(workers), 0, -1) if workers % r == 0)
    return rows, workers // rows


def torus(workers: int) -> Edges:
    """Numbered row by row. Where a side is 2, the neighbours on both sides are one neighbour, with one edge."""
    rows, columns = torus_shape(workers)
    places = [(row, at) for row in range(rows) for at in range(columns)]
    right = ((row * columns + at, row * columns + (at + 1) % columns) for row, at in places)
    below = ((row * columns + at, (row + 1) % rows * columns + at) for row, at in places)
    return simple((*right, *below))


def hypercube(workers: int) -> Edges:
    """Workers whose numbers differ in one bit; `workers` is a power of two."""
    return simple((r, r ^ 1 << bit) for r in range(workers) for bit in range(hops(workers)))


def complete(workers: int) -> Edges:
    return tuple(combinations(range(workers), 2))


def hops(workers: int) -> int:
    """How many powers of two are less than `workers`: ceil(log2(workers))."""
    return (workers - 1).bit_length()


def exponential(workers: int) -> Edges:
    """Arrows: r hears r + 1, r + 2, r + 4, ... round the circle, at every power of two below `workers`."""
    return tuple((r, (r + (1 << hop)) % workers) for r in range(workers) for hop in range(hops(workers)))


def one_peer_exponential(workers: int, round: int) -> Edges:
    """Arrows: one hop of the exponential graph a round, the same for all, in turn."""
    if workers == 1:
        return ()
    hop = 1 << round % hops(workers)
    return tuple((r, (r + hop) % workers) for r in range(workers))


def shift_one(workers: int, round: int) -> Edges:
    """Worker r of the first half meets r + round of the second half. Of an odd number, the first half has one more, and
    whoever would meet the missing one is alone."""
    half = (workers + 1) // 2
    pairs = ((r, half + (r + round) % half) for r in range(half))
    return tuple(pair for pair in pairs if pair[1] < workers)


def random_pairs(workers: int, round: int, seed: int) -> Edges:
    """A matching that is a function of (seed, round), all equally likely; of an odd number one worker is alone."""
    order = permutation(workers, seed, PAIRS, round)
    return simple(zip(order[::2], order[1::2], strict=False))


def simple(pairs: Iterable[Edge]) -> Edges:
    """Each pair once, none of a worker with itself."""
    return tuple(sorted({(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}))
