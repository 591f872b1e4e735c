"""What a worker must know of a topology in a round: whom it hears with which weight, who hears it.

`seed` is the plan's. In a symmetric topology those that a worker hears are those that hear it; in a directed one they
differ, so sends go to `receivers` and receives come from `partners`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from relaxc.topology.kinds import Row, directed, rows
from relaxc.topology.topology import Topology

if TYPE_CHECKING:
    from numpy.typing import NDArray


def weights(topology: Topology, workers: int, round: int, seed: int, rank: int) -> Row:
    """(peer, W[rank, peer]) in rank order: this worker, and all others whose weight is not 0."""
    return rows(topology, workers, round, seed)[rank]


def own_weight(topology: Topology, workers: int, round: int, seed: int, rank: int) -> float:
    """W[rank, rank]."""
    return dict(weights(topology, workers, round, seed, rank))[rank]


def partners(topology: Topology, workers: int, round: int, seed: int, rank: int) -> tuple[int, ...]:
    """The others whose messages this worker receives, in rank order."""
    return tuple(peer for peer, _ in weights(topology, workers, round, seed, rank) if peer != rank)


def receivers(topology: Topology, workers: int, round: int, seed: int, rank: int) -> tuple[int, ...]:
    """The others who receive this worker's message, in rank order; the same as `partners` unless `directed`."""
    if not directed(topology):
        return partners(topology, workers, round, seed, rank)
    matrix_rows = rows(topology, workers, round, seed)
    return tuple(peer for peer in range(workers) if peer != rank and any(j == rank for j, _ in matrix_rows[peer]))


def matrix(topology: Topology, workers: int, round: int, seed: int) -> NDArray[Any]:
    """W of shape (workers, workers), f64."""
    import numpy as np

    w = np.zeros((workers, workers))
    for rank, row in enumerate(rows(topology, workers, round, seed)):
        for peer, weight in row:
            w[rank, peer] = weight
    return w
