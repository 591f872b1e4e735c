"""The topologies by name: the mixing matrix of a round as rows, when it comes again, which worker counts there are.

Every matrix is column stochastic: what a worker has, it shares out. All but those of `arrows` are doubly stochastic.
All are symmetric but those of `arrows`, and of `exponential` and `one_peer_exponential`, which are the published ones
(Ying et al. 2021): directed, each worker hearing as many as hear it, with equal weights. All others have
Metropolis-Hastings weights, W[i, j] = 1 / (1 + max(degree i, degree j)), a pair 1/2 and 1/2, and `edges` and `arrows`
those of their file. Of `ready_pairs` the rows are those of the graph that its pairs are of: they are found while
training.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import fsum, prod
from typing import Any, cast

from relaxc.topology import graphs
from relaxc.topology.graphs import Edge, Edges
from relaxc.topology.topology import Topology
from relaxc.wire.draws import permutation

Row = tuple[tuple[int, float], ...]
"""(rank, weight) of those that a worker hears, itself always included, in rank order."""
Rows = tuple[Row, ...]
Arguments = tuple[Any, ...]
Weigh = Callable[[Edges, int], Rows]

SLACK = 1e-9
"""How far from 1 weights may add up: 0.333333334 three times is meant to be 1."""
NUMBERING = 2
"""Tells the draws of `shuffled` from other draws with the same seed."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`rows(arguments, workers, round, seed)` is the mixing matrix of a round, `pattern(arguments, workers)` what the
    function of that name says, `refusal(arguments, workers)` likewise. `spread` is the largest 1 - lambda_min(W) that
    there is for any number of workers (its least upper bound); of one that `wraps` another it is a factor to that
    one's, and `least` what there is at least. Of one that is `met`, `rows` are those of the graph in which two that are
    ready may meet."""

    rows: Callable[[Arguments, int, int, int], Rows]
    pattern: Callable[[Arguments, int], int] = lambda arguments, workers: 1
    refusal: Callable[[Arguments, int], str | None] = lambda arguments, workers: None
    changes: bool = False
    random: bool = False
    directed: bool = False
    balanced: Callable[[Arguments], bool] = lambda arguments: True
    """Whether the matrix is doubly stochastic, so that a mix keeps the workers' mean."""
    spread: float = 2.0
    wraps: bool = False
    least: float = 0.0
    met: bool = False


# --- weights


def metropolis(edges: Edges, workers: int) -> Rows:
    degree = Counter(worker for edge in edges for worker in edge)
    heard: list[dict[int, int]] = [{} for _ in range(workers)]
    for i, j in edges:
        heard[i][j] = heard[j][i] = 1 + max(degree[i], degree[j])
    return tuple(_metropolis_row(rank, parts) for rank, parts in enumerate(heard))


def _metropolis_row(rank: int, parts: dict[int, int]) -> Row:
    """Each weight is 1 / part; what is left for the worker itself is rounded once."""
    own = 1 - sum((Fraction(count, part) for part, count in Counter(parts.values()).items()), Fraction(0))
    return tuple(sorted([*((peer, 1 / part) for peer, part in parts.items()), (rank, float(own))]))


def uniform(arrows: Edges, workers: int) -> Rows:
    """A worker and all that it hears weigh the same, one that it hears twice, or itself, twice as much. Each worker
    hears as many as hear it: else the matrix is not doubly stochastic."""
    heard: list[list[int]] = [[rank] for rank in range(workers)]
    for i, j in arrows:
        heard[i].append(j)
    return tuple(tuple((peer, n / len(row)) for peer, n in sorted(Counter(row).items())) for row in heard)


def given(edges: Arguments, workers: int) -> Rows:
    """`edges` as (i, j, weight); what is left is the worker's own."""
    heard: list[dict[int, float]] = [{} for _ in range(workers)]
    for i, j, weight in edges:
        heard[i][j] = heard[j][i] = float(weight)
    return tuple(
        tuple(sorted([*row.items(), (rank, max(0.0, 1 - fsum(row.values())))])) for rank, row in enumerate(heard)
    )


def shared_out(arrows: Arguments, workers: int) -> Rows:
    """`arrows` as (sender, receiver) or (sender, receiver, weight). Without weights a sender gives itself and each of
    its receivers the same; with them it keeps what they leave."""
    heard: list[dict[int, float]] = [{} for _ in range(workers)]
    for sender, given_away in sent(arrows, workers).items():
        for receiver, weight in given_away.items():
            heard[receiver][sender] = weight
        heard[sender][sender] = 1 / (1 + len(given_away)) if _unweighted(arrows) else _left(given_away)
    return tuple(tuple(sorted(row.items())) for row in heard)


def sent(arrows: Arguments, workers: int) -> dict[int, dict[int, float]]:
    """By sender, what of its own each receiver gets."""
    receivers: dict[int, dict[int, float]] = {rank: {} for rank in range(workers)}
    for sender, receiver, *weight in arrows:
        receivers[sender][receiver] = float(weight[0]) if weight else 0.0
    if _unweighted(arrows):
        return {s: dict.fromkeys(found, 1 / (1 + len(found))) for s, found in receivers.items()}
    return receivers


def _unweighted(arrows: Arguments) -> bool:
    return not arrows or len(arrows[0]) == 2


def _left(given_away: dict[int, float]) -> float:
    return max(0.0, 1 - fsum(given_away.values()))


# --- what has arguments: edges, arrows, and what wraps another topology


def _edges(edges: Arguments, workers: int, round: int, seed: int) -> Rows:
    if edges and len(edges[0]) == 3:
        return given(edges, workers)
    return metropolis(graphs.simple(cast("tuple[Edge, ...]", edges)), workers)


def _edges_refusal(edges: Arguments, workers: int) -> str | None:
    return _too_few("edges", edges, workers)


def _too_few(what: str, edges: Arguments, workers: int) -> str | None:
    highest = max((rank for edge in edges for rank in edge[:2]), default=0)
    if highest < workers:
        return None
    return f"the {what} name worker {highest}, so there must be {highest + 1} workers or more, not {workers}"


def _arrows(arrows: Arguments, workers: int, round: int, seed: int) -> Rows:
    return shared_out(arrows, workers)


def _arrows_refusal(arrows: Arguments, workers: int) -> str | None:
    return _too_few("arrows", arrows, workers)


def _balanced(arrows: Arguments) -> bool:
    """Workers that the file does not name are alone, with any number of them."""
    workers = 1 + max((rank for arrow in arrows for rank in arrow[:2]), default=0)
    return all(abs(fsum(weight for _, weight in row) - 1) <= SLACK for row in shared_out(arrows, workers))


def _lazy(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
    (inner,) = arguments
    return tuple(_halved(rank, row) for rank, row in enumerate(rows(inner, workers, round, seed)))


def _halved(rank: int, row: Row) -> Row:
    return tuple((peer, (weight + (peer == rank)) / 2) for peer, weight in row)


def _shuffled(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
    """Worker r plays the part of `part[r]`; the parts are dealt anew each time that the inner topology begins again."""
    (inner,) = arguments
    part = permutation(workers, seed, NUMBERING, round // pattern(inner, workers))
    player = {p: rank for rank, p in enumerate(part)}
    inner_rows = rows(inner, workers, round, seed)
    return tuple(tuple(sorted((player[peer], weight) for peer, weight in inner_rows[p])) for p in part)


def _inner_pattern(arguments: Arguments, workers: int) -> int:
    return pattern(arguments[0], workers)


def _inner_refusal(arguments: Arguments, workers: int) -> str | None:
    return refusal(arguments[0], workers)


def _hierarchy(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
    """The machines' matrix, each entry dealt evenly to the workers of that machine: its Kronecker product with the mean
    within one."""
    outer, inner = _machines(arguments)
    spread = [
        tuple((machine * inner + local, weight / inner) for machine, weight in row for local in range(inner))
        for row in rows(outer, workers // inner, round, seed)
    ]
    return tuple(spread[rank // inner] for rank in range(workers))


def _machines(arguments: Arguments) -> tuple[Topology, int]:
    """The topology of machines and how many workers each has; one, until somebody says."""
    return arguments[0], arguments[1] if len(arguments) > 1 else 1


def _hierarchy_pattern(arguments: Arguments, workers: int) -> int:
    outer, inner = _machines(arguments)
    return pattern(outer, workers // inner)


def _hierarchy_refusal(arguments: Arguments, workers: int) -> str | None:
    outer, inner = _machines(arguments)
    if workers % inner:
        return f"{workers} workers are not a whole number of machines with {inner} workers each"
    why = refusal(outer, workers // inner)
    return why and f"of machines with {inner} workers each: {why}"


def _ready(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
    """Who meets whom shows while training; this is the graph in which they are neighbours, with its weights."""
    (inner,) = arguments
    return rows(inner, workers, round, seed)


# --- worker counts


def _hypercube_refusal(arguments: Arguments, workers: int) -> str | None:
    if workers & (workers - 1) == 0:
        return None
    above = 1 << graphs.hops(workers)
    return f"a hypercube has a power of two of workers, such as {above // 2} or {above}, not {workers}"


def _torus_refusal(arguments: Arguments, workers: int) -> str | None:
    if workers == 1 or graphs.torus_shape(workers)[0] > 1:
        return None
    near = [n for n in (workers - 1, workers + 1) if n > 3] or [4]
    fit = " or ".join("{} = {} x {}".format(n, *graphs.torus_shape(n)) for n in near)
    return f"a torus has rows and columns of two workers or more, such as {fit}, not {workers}"


# --- the table


def _fixed(graph: Callable[[int], Edges], weigh: Weigh = metropolis, **more: Any) -> Kind:
    def of_round(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
        return weigh(graph(workers), workers)

    return Kind(of_round, **more)


def _turning(graph: Callable[[int, int], Edges], weigh: Weigh = metropolis, **more: Any) -> Kind:
    def of_round(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
        return weigh(graph(workers, round), workers)

    return Kind(of_round, changes=True, **more)


def _random_pairs(arguments: Arguments, workers: int, round: int, seed: int) -> Rows:
    return metropolis(graphs.random_pairs(workers, round, seed), workers)


TOPOLOGIES: dict[str, Kind] = {
    "ring": _fixed(graphs.ring, spread=4 / 3),
    "chain": _fixed(graphs.chain, spread=4 / 3),
    "star": _fixed(graphs.star, spread=1.0),
    "torus": _fixed(graphs.torus, refusal=_torus_refusal, spread=8 / 5),
    "hypercube": _fixed(graphs.hypercube, refusal=_hypercube_refusal),
    "complete": _fixed(graphs.complete, spread=1.0),
    "exponential": _fixed(graphs.exponential, uniform, directed=True, spread=3 / 2),
    "one_peer_exponential": _turning(
        graphs.one_peer_exponential,
        uniform,
        pattern=lambda arguments, workers: max(1, graphs.hops(workers)),
        directed=True,
        spread=1.0,
    ),
    "shift_one": _turning(graphs.shift_one, pattern=lambda arguments, workers: (workers + 1) // 2, spread=1.0),
    "random_pairs": Kind(_random_pairs, changes=True, random=True, spread=1.0),
    "edges": Kind(_edges, refusal=_edges_refusal),
    "arrows": Kind(_arrows, refusal=_arrows_refusal, directed=True, balanced=_balanced),
    "lazy": Kind(_lazy, _inner_pattern, _inner_refusal, spread=0.5, wraps=True),
    "shuffled": Kind(_shuffled, _inner_pattern, _inner_refusal, changes=True, random=True, spread=1.0, wraps=True),
    "hierarchy": Kind(_hierarchy, _hierarchy_pattern, _hierarchy_refusal, spread=1.0, least=1.0, wraps=True),
    "ready_pairs": Kind(_ready, _inner_pattern, _inner_refusal, changes=True, spread=1.0, wraps=True, met=True),
}


def pattern(topology: Topology, workers: int) -> int:
    """After how many rounds the matrix comes again; for a random topology, with other numbers for the workers."""
    return TOPOLOGIES[topology.name].pattern(topology.arguments, workers)


def inner(topology: Topology) -> tuple[Topology, ...]:
    """The topology in brackets, if there is one."""
    return tuple(argument for argument in topology.arguments if isinstance(argument, Topology))


def random(topology: Topology) -> bool:
    """Whether rounds are drawn from the seed."""
    return TOPOLOGIES[topology.name].random or any(random(part) for part in inner(topology))


def changes(topology: Topology) -> bool:
    """Whether the matrix differs between rounds for some worker count."""
    return TOPOLOGIES[topology.name].changes or any(changes(part) for part in inner(topology))


def met(topology: Topology) -> bool:
    """Whether partners are known only while training."""
    return TOPOLOGIES[topology.name].met or any(met(part) for part in inner(topology))


def neighbours(topology: Topology, workers: int, rank: int) -> tuple[int, ...]:
    """Whom a worker may meet: its neighbours in the graph."""
    return tuple(peer for peer, _ in rows(topology, workers, 0, 0)[rank] if peer != rank)


@lru_cache(maxsize=256)
def most_heard(topology: Topology, workers: int) -> int:
    """How many others a worker hears in a round, at most. Whoever is drawn, it is as many."""
    if met(topology):
        return 1
    every = (rows(topology, workers, round, 0) for round in range(pattern(topology, workers)))
    return max(len(row) - 1 for matrix in every for row in matrix)


def pair_row(rank: int, peer: int) -> Row:
    """Of a worker that meets one other."""
    return tuple(sorted(((rank, 0.5), (peer, 0.5))))


def directed(topology: Topology) -> bool:
    """Whether the matrix is not symmetric for some worker count: a worker hears others than those that hear it."""
    return TOPOLOGIES[topology.name].directed or any(directed(part) for part in inner(topology))


def doubly_stochastic(topology: Topology) -> bool:
    """Whether what each worker hears adds up to 1, as what each sends does: a mix keeps the workers' mean."""
    return TOPOLOGIES[topology.name].balanced(topology.arguments) and all(map(doubly_stochastic, inner(topology)))


def spread(topology: Topology) -> float:
    """1 - lambda_min(W), at most."""
    kind = TOPOLOGIES[topology.name]
    return max(kind.least, prod((spread(part) for part in inner(topology)), start=kind.spread))


def located(topology: Topology, inner: int) -> Topology:
    """What `topology` means where a machine has `inner` workers, unless it says so itself."""
    open = topology.name == "hierarchy" and len(topology.arguments) == 1
    return Topology(topology.name, (*topology.arguments, inner)) if open else topology


def machine_size(topology: Topology) -> int | None:
    """The workers of a machine, where a topology knows any."""
    return _machines(topology.arguments)[1] if topology.name == "hierarchy" else None


def at_odds(topology: Topology, workers: int) -> tuple[Topology, int]:
    """The topology and number of those who can disagree: in a hierarchy machines, after a round."""
    if topology.name != "hierarchy":
        return topology, workers
    outer, inner = _machines(topology.arguments)
    return outer, workers // inner


def period(topology: Topology, workers: int) -> int | None:
    """1: the matrix never changes; k: it comes again after k rounds; None: it is drawn anew, from the seed."""
    if random(topology) and workers > 2:  # two workers are one pair, however they are numbered
        return None
    return pattern(topology, workers)


def refusal(topology: Topology, workers: int) -> str | None:
    """Why `workers` workers, one or more, can't have this topology, and how many can; None where they can."""
    return TOPOLOGIES[topology.name].refusal(topology.arguments, workers)


def rows(topology: Topology, workers: int, round: int, seed: int) -> Rows:
    """The mixing matrix of a round, row by row. Only a random topology looks at the seed.

    Raises ValueError where `refusal` says something.
    """
    again = period(topology, workers)
    return _rows(topology, workers, round, seed) if again is None else _rows(topology, workers, round % again, 0)


@lru_cache(maxsize=256)
def _rows(topology: Topology, workers: int, round: int, seed: int) -> Rows:
    if (why := refusal(topology, workers)) is not None:
        raise ValueError(why)
    return TOPOLOGIES[topology.name].rows(topology.arguments, workers, round, seed)
