"""Every topology for every number of workers from 1 to 64: what is promised of it, by definitions that share no code
with it."""

from __future__ import annotations

from math import ceil, cos, isqrt, log2, pi

import numpy as np
import pytest

from relaxc.topology.kinds import TOPOLOGIES, changes, directed, pattern, period, refusal
from relaxc.topology.spectrum import connected, exact, left_over, smallest_eigenvalue, spectral_gap
from relaxc.topology.topology import Topology
from relaxc.topology.weights import matrix, partners, receivers

COUNTS = range(1, 65)
PLAIN = [Topology(name) for name, kind in TOPOLOGIES.items() if name not in ("edges", "arrows") and not kind.wraps]
CHAIN_OF_FOUR = Topology("edges", ((0, 1), (1, 2), (2, 3)))
EVERY = [
    *PLAIN,
    *(Topology(w, (t,)) for w in ("lazy", "shuffled", "ready_pairs") for t in PLAIN),
    Topology("lazy", (CHAIN_OF_FOUR,)),
    *(Topology("hierarchy", (t, 2)) for t in PLAIN),
    Topology("edges", ((0, 1, 0.5), (1, 2, 0.25))),
]
SEED = 5


def those(topology, counts=COUNTS):
    return [n for n in counts if refusal(topology, n) is None]


def ever_connected(topology, workers, rounds):
    """Whether who hears whom in some round reaches everybody. Looked at now and then: links only come in addition."""
    links = np.zeros((workers, workers), dtype=bool)
    for round in range(rounds):
        links |= matrix(topology, workers, round, SEED) > 0
        if round % 16 == 15 and strongly_connected(links):
            return True
    return strongly_connected(links)


def strongly_connected(links):
    reach = np.eye(len(links), dtype=bool) | links
    for _ in range(len(links).bit_length() + 1):
        reach = (reach.astype(int) @ reach.astype(int)) > 0
    return bool(reach.all())


def sides(workers):
    rows = max(a for a in range(1, isqrt(workers) + 1) if workers % a == 0)
    return rows, workers // rows


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_each_round_is_doubly_stochastic(topology):
    for n in those(topology):
        for round in range(min(pattern(topology, n), 8)):
            w = matrix(topology, n, round, SEED)
            assert (w >= 0).all()
            assert np.abs(w.sum(0) - 1).max() < 1e-14 and np.abs(w.sum(1) - 1).max() < 1e-14
            assert directed(topology) or np.array_equal(w, w.T)


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_sender_and_receiver_agree_in_each_round(topology):
    for n in those(topology):
        for round in range(min(pattern(topology, n), 4)):
            hears = {(i, j) for i in range(n) for j in partners(topology, n, round, SEED, i)}
            tells = {(j, i) for i in range(n) for j in receivers(topology, n, round, SEED, i)}
            assert hears == tells and all(i != j for i, j in hears)


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_connected_over_a_period_or_said_not_to_be(topology):
    """Of what is drawn anew, n * n rounds are as good as for ever."""
    for n in those(topology):
        again = period(topology, n)
        rounds = max(40, 2 * n * pattern(topology, n)) if again is None else again
        assert connected(topology, n) == ever_connected(topology, n, rounds), n
        assert connected(topology, n) or topology.name in ("edges", "lazy")


@pytest.mark.parametrize("n", COUNTS)
def test_what_comes_again_after_a_period(n):
    for topology in (t for t in EVERY if refusal(t, n) is None):
        again = period(topology, n)
        if again is not None:
            for round in range(min(again, 3)):
                assert np.array_equal(matrix(topology, n, round, 1), matrix(topology, n, round + again, 2))
        assert changes(topology) or again == 1


CLOSED_FORMS = {
    "ring": lambda n: 2 / 3 * (1 - cos(2 * pi / n)) if n > 2 else 1,
    "torus": lambda n: 2 / 5 * (1 - cos(2 * pi / max(sides(n)))) if min(sides(n)) > 2 else None,
    "hypercube": lambda n: 2 / (log2(n) + 1) if n > 1 else 1,
    "exponential": lambda n: 2 / (1 + ceil(log2(n))) if n % 2 == 0 else None,
    "star": lambda n: 1 / n if n > 2 else 1,
    "chain": lambda n: 2 / 3 * (1 - cos(pi / n)) if n > 2 else 1,
    "complete": lambda n: 1,
    "random_pairs": lambda n: 1 if n == 1 else n / (2 * (n - 1)) if n % 2 == 0 else 1 / 2,
    "one_peer_exponential": lambda n: 1 if n & (n - 1) == 0 else None,
}
"""None where there is no closed form. Of an odd number a matching has (n - 1) / 2 pairs, and E[W] = I - L / (2n) for
the Laplacian L of the complete graph, whose eigenvalues are n."""


@pytest.mark.parametrize("name", CLOSED_FORMS)
def test_gaps_are_the_closed_forms(name):
    for n in those(Topology(name)):
        expected = CLOSED_FORMS[name](n)
        if expected is not None:
            assert spectral_gap(Topology(name), n) == pytest.approx(expected, abs=1e-11), n


@pytest.mark.parametrize("n", COUNTS)
def test_an_even_ring_is_exactly_at_a_third(n):
    """2/3 at most off it, that is, and the odd ones above; the lazy ring is far from it."""
    lowest = smallest_eigenvalue(Topology("ring"), n)
    if n > 3 and n % 2 == 0:
        assert lowest == pytest.approx(-1 / 3, abs=1e-12)
    else:
        assert lowest > -1 / 3 + 1e-4
    assert smallest_eigenvalue(Topology("lazy", (Topology("ring"),)), n) > 1 / 3 - 1e-12


@pytest.mark.parametrize("n", COUNTS)
def test_one_peer_schedules_are_exact_for_powers_of_two_only(n):
    one_peer = Topology("one_peer_exponential")
    power = n & (n - 1) == 0
    assert exact(one_peer, n) == power
    assert exact(Topology("shuffled", (one_peer,)), n) == power
    assert exact(Topology("shift_one"), n) == (n in (1, 2, 4))
    assert exact(Topology("random_pairs"), n) == (n <= 2)
    assert exact(Topology("complete"), n)
    assert exact(Topology("ring"), n) == (n <= 3)
    assert not exact(Topology("lazy", (one_peer,)), n) or n == 1


@pytest.mark.parametrize("n", range(2, 65))
def test_what_is_left_is_the_norm_of_the_product(n):
    for name in ("one_peer_exponential", "shift_one", "star"):
        topology = Topology(name)
        product = np.eye(n)
        for round in range(pattern(topology, n)):
            product = matrix(topology, n, round, 0) @ product
        norm = np.linalg.svd(product - 1 / n, compute_uv=False)[0]
        assert left_over(topology, n) == pytest.approx(norm, abs=1e-12)


def test_no_graph_is_drawn_at_random():
    """Erdos-Renyi graphs may be disconnected: a drawn one is given as `edges`."""
    assert not [name for name in TOPOLOGIES if "erdos" in name or "renyi" in name]
