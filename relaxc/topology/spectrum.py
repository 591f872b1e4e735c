"""How fast a topology mixes: what its eigenvalues say. numpy is imported where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxc.topology.kinds import at_odds, doubly_stochastic, pattern, period, rows
from relaxc.topology.topology import Topology
from relaxc.topology.weights import matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

AT, SURELY = 1e-5, 1e-4
"""How near an eigenvalue is at a bound, and how far below one it is beyond it."""
NOTHING = 1e-12
"""What is left of a disagreement that is no more than rounding."""


def spectral_gap(topology: Topology, workers: int, seed: int = 0) -> float:
    """1 - what a round leaves of the workers' disagreement; 1 is the exact mean, 0 is no mixing at all.

    What never changes: 1 - |second largest eigenvalue of W|; a single round may leave more where W is not normal, as
    of a directed graph. What comes again after k rounds: 1 - s^(1/k), s = ||P - 11'/n||_2 for the product P of these
    rounds. What is drawn anew: 1 - (second largest eigenvalue of E[P'P])^(1/k), of the squared disagreement, P the
    rounds of one numbering of workers. That is a closed form for any seed: all numberings are equally likely, so
    E[P'P] = aI + b11' with a = (tr P'P - 1) / (n - 1).
    For random pairs of an even number it is n / (2(n - 1)) (Boyd et al. 2006).

    What is column stochastic only leaves workers with unequal masses, not with the mean: 1 - (second largest
    |eigenvalue| of P)^(1/k), by which the ratio of value and mass comes to it; of `shuffled` for one numbering.
    """
    topology, workers = at_odds(topology, workers)
    if workers == 1:
        return 1.0
    rounds = pattern(topology, workers)
    product = _product(topology, workers, rounds, seed)
    left = _left_of(topology, product)
    return 1 - (left ** (1 / rounds) if left > NOTHING else 0.0)


def exact(topology: Topology, workers: int) -> bool:
    """Whether a period of rounds makes the exact mean of any values: their product is 11'/n. Of a one-peer schedule
    that is so for a power of two of workers, and of no random one for more than two."""
    return left_over(topology, workers) <= NOTHING


def left_over(topology: Topology, workers: int) -> float:
    """What a period of rounds leaves of the workers' disagreement (its norm): at most, and for what is drawn anew as a
    root mean square."""
    if workers == 1:
        return 0.0
    product = _product(topology, workers, pattern(topology, workers), 0)
    return _left(product) if period(topology, workers) is not None else max(0.0, _left_on_average(product)) ** 0.5


def _product(topology: Topology, workers: int, rounds: int, seed: int) -> NDArray[Any]:
    import numpy as np

    product = np.eye(workers)
    for round in range(rounds):
        product = matrix(topology, workers, round, seed) @ product
    return product


def _left_of(topology: Topology, product: NDArray[Any]) -> float:
    if not doubly_stochastic(topology) or period(topology, len(product)) == 1:
        return _second(product)
    return _left(product) if period(topology, len(product)) is not None else _left_on_average(product)


def _second(product: NDArray[Any]) -> float:
    import numpy as np

    return float(np.sort(np.abs(np.linalg.eigvals(product)))[-2])


def _left(product: NDArray[Any]) -> float:
    import numpy as np

    return float(np.linalg.norm(product - 1 / len(product), 2))


def _left_on_average(product: NDArray[Any]) -> float:
    return float(((product**2).sum() - 1) / (len(product) - 1))


def smallest_eigenvalue(topology: Topology, workers: int) -> float:
    """Of W, over all rounds; for a directed topology that of (W + W') / 2, the smallest real part. In [-1, 1]."""
    import numpy as np

    matrices = (matrix(topology, workers, round, 0) for round in range(pattern(topology, workers)))
    return min(float(np.linalg.eigvalsh((w + w.T) / 2)[0]) for w in matrices)


def connected(topology: Topology, workers: int) -> bool:
    """Whether what a worker knows reaches every other one, over a period; where workers are numbered anew, sooner or
    later."""
    heard = [
        (rank, peer)
        for round in range(pattern(topology, workers))
        for rank, row in enumerate(rows(topology, workers, round, 0))
        for peer, _ in row
        if peer != rank
    ]
    if workers == 1 or period(topology, workers) is None:
        return workers == 1 or bool(heard)
    hearing = [(peer, rank) for rank, peer in heard]
    return len(_reached(heard)) == len(_reached(hearing)) == workers


def _reached(arrows: list[tuple[int, int]]) -> set[int]:
    """The workers that paths from worker 0 lead to, itself included."""
    neighbours: dict[int, set[int]] = {}
    for i, j in arrows:
        neighbours.setdefault(i, set()).add(j)
    reached, waiting = {0}, [0]
    while waiting:
        new = neighbours.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached
