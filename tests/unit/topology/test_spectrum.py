"""Spectral gaps against closed forms, and against eigenvalues of matrices that are written down here."""

from __future__ import annotations

from math import ceil, cos, log2, pi

import numpy as np
import pytest

from relaxc.topology.spectrum import connected, smallest_eigenvalue, spectral_gap
from relaxc.topology.topology import Topology
from relaxc.topology.weights import matrix

CLOSE = pytest.approx


@pytest.mark.parametrize("d", range(2, 7))
def test_what_is_directed_and_not_normal(d):
    """De Bruijn's graph, where i sends to 2i and 2i + 1: all eigenvalues but one are 0, so those of (I + A) / 3 are
    1 / 3. The product of rounds has larger singular values."""
    n = 2**d
    arrows = tuple((i, j, 1 / 3) for i in range(n) for j in (2 * i % n, (2 * i + 1) % n) if i != j)
    assert spectral_gap(Topology("arrows", arrows), n) == CLOSE(2 / 3, abs=5e-3)


@pytest.mark.parametrize("n", range(3, 65, 7))
def test_ring(n):
    assert spectral_gap(Topology("ring"), n) == CLOSE(2 / 3 * (1 - cos(2 * pi / n)), abs=1e-12)
    lowest = (1 + 2 * cos(2 * pi * (n // 2) / n)) / 3
    assert smallest_eigenvalue(Topology("ring"), n) == CLOSE(lowest, abs=1e-12)


@pytest.mark.parametrize(("n", "side"), [(9, 3), (12, 4), (16, 4), (20, 5), (32, 8), (64, 8)])
def test_torus_with_sides_of_three_or_more(n, side):
    assert spectral_gap(Topology("torus"), n) == CLOSE(2 / 5 * (1 - cos(2 * pi / side)), abs=1e-12)


@pytest.mark.parametrize("d", range(1, 7))
def test_hypercube(d):
    assert spectral_gap(Topology("hypercube"), 2**d) == CLOSE(2 / (d + 1), abs=1e-12)
    assert smallest_eigenvalue(Topology("hypercube"), 2**d) == CLOSE((1 - d) / (1 + d), abs=1e-12)


@pytest.mark.parametrize("n", [4, 6, 8, 10, 16, 32, 64])
def test_exponential(n):
    assert spectral_gap(Topology("exponential"), n) == CLOSE(2 / (1 + ceil(log2(n))), abs=1e-12)


@pytest.mark.parametrize("n", range(3, 65, 9))
def test_star_and_complete(n):
    assert spectral_gap(Topology("star"), n) == CLOSE(1 / n, abs=1e-12)
    assert spectral_gap(Topology("complete"), n) == CLOSE(1, abs=1e-12)


@pytest.mark.parametrize("n", [3, 4, 9, 17])
def test_chain(n):
    """Metropolis weights of a path are 1/3: W = I - L/3, L the path's Laplacian, eigenvalues 2 - 2 cos(pi k / n)."""
    assert spectral_gap(Topology("chain"), n) == CLOSE(2 / 3 * (1 - cos(pi / n)), abs=1e-12)


@pytest.mark.parametrize("n", [2, 4, 8, 16, 64])
def test_one_peer_exponential_of_a_power_of_two_is_the_exact_mean(n):
    assert spectral_gap(Topology("one_peer_exponential"), n) == 1


@pytest.mark.parametrize(("n", "error"), [(6, 0.083), (10, 0.037), (12, 0.042)])
def test_one_peer_exponential_of_others_is_not(n, error):
    """The largest error of an element of the product, as published; and the gap from the circulant's own eigenvalues."""
    rounds = ceil(log2(n))
    product = np.linalg.multi_dot([matrix(Topology("one_peer_exponential"), n, r, 0) for r in range(rounds)])
    assert np.abs(product - 1 / n).max() == CLOSE(error, abs=5.1e-4)
    roots = [np.prod([(1 + np.exp(2j * pi * k * 2**r / n)) / 2 for r in range(rounds)]) for k in range(1, n)]
    assert spectral_gap(Topology("one_peer_exponential"), n) == CLOSE(1 - max(map(abs, roots)) ** (1 / rounds))


@pytest.mark.parametrize("n", [4, 6, 8, 16, 64])
def test_random_pairs_of_an_even_number(n):
    assert spectral_gap(Topology("random_pairs"), n) == CLOSE(n / (2 * (n - 1)), abs=1e-12)


@pytest.mark.parametrize(
    "topology",
    [
        Topology("random_pairs"),
        Topology("shuffled", (Topology("star"),)),
        Topology("lazy", (Topology("random_pairs"),)),
    ],
    ids=str,
)
@pytest.mark.parametrize("n", [3, 5, 6])
def test_random_gaps_are_those_of_the_average(topology, n):
    """E[W'W] as the average of 4000 rounds."""
    average = np.mean([(w := matrix(topology, n, r, 1)).T @ w for r in range(4000)], axis=0)
    second = np.linalg.eigvalsh(average)[-2]
    assert spectral_gap(topology, n) == CLOSE(1 - second, abs=0.02)


def test_shuffled_rounds_are_counted_one_by_one():
    """Two rounds of one_peer_exponential of 4 are the exact mean, in whatever numbering."""
    assert spectral_gap(Topology("shuffled", (Topology("one_peer_exponential"),)), 4) == 1


@pytest.mark.parametrize("n", range(3, 12))
def test_lazy_halves_the_way_to_one(n):
    lazy = Topology("lazy", (Topology("ring"),))
    assert spectral_gap(lazy, n) == CLOSE((1 - cos(2 * pi / n)) / 3, abs=1e-12)
    assert smallest_eigenvalue(lazy, n) == CLOSE((1 + smallest_eigenvalue(Topology("ring"), n)) / 2, abs=1e-12)


def test_the_smallest_eigenvalue_of_what_changes_and_of_what_is_directed():
    assert smallest_eigenvalue(Topology("shift_one"), 6) == CLOSE(0, abs=1e-12)
    real = min((1 + np.exp(2j * pi * k / 5)).real / 2 for k in range(5))
    assert smallest_eigenvalue(Topology("one_peer_exponential"), 5) == CLOSE(real, abs=1e-12)


@pytest.mark.parametrize(
    "name", ["ring", "chain", "star", "complete", "exponential", "one_peer_exponential", "shift_one", "random_pairs"]
)
@pytest.mark.parametrize("n", [*range(1, 18), 64])
def test_connected_over_a_period(name, n):
    assert connected(Topology(name), n)
    assert connected(Topology("shuffled", (Topology(name),)), n)
    assert spectral_gap(Topology(name), n) > 0


@pytest.mark.parametrize("n", [4, 6, 8, 9, 16])
def test_connected_grids(n):
    assert connected(Topology("torus"), n)
    assert n & (n - 1) or connected(Topology("hypercube"), n)


def test_one_round_of_pairs_connects_nothing_but_shuffled_pairs_do():
    pairs = Topology("edges", ((0, 1), (2, 3)))
    assert not connected(pairs, 4)
    assert spectral_gap(pairs, 4) == CLOSE(0, abs=1e-12)
    assert connected(Topology("shuffled", (pairs,)), 4)
    assert spectral_gap(Topology("shuffled", (pairs,)), 4) == CLOSE(4 / 6)


def test_a_worker_that_the_edges_leave_out():
    path = Topology("edges", ((0, 1), (1, 2)))
    assert connected(path, 3)
    assert not connected(path, 4)
    assert not connected(Topology("edges", ((1, 2), (2, 3))), 4)


def test_one_worker_has_nothing_to_mix():
    for name in ("ring", "random_pairs", "shift_one", "exponential"):
        assert spectral_gap(Topology(name), 1) == 1


@pytest.mark.parametrize("inner", [1, 2, 4])
@pytest.mark.parametrize("name", ["ring", "exponential", "random_pairs", "one_peer_exponential"])
def test_the_gap_of_a_hierarchy_is_that_of_its_machines(name, inner):
    topology = Topology("hierarchy", (Topology(name), inner))
    assert spectral_gap(topology, 6 * inner) == spectral_gap(Topology(name), 6)
    assert spectral_gap(topology, inner) == 1.0


def test_the_gap_of_a_hierarchy_is_that_of_its_matrix():
    w = matrix(Topology("hierarchy", (Topology("ring"), 3)), 15, 0, 0)
    assert spectral_gap(Topology("hierarchy", (Topology("ring"), 3)), 15) == pytest.approx(
        1 - np.linalg.norm(w - 1 / 15, 2)
    )
