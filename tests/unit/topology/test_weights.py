"""Mixing matrices: doubly stochastic, symmetric, Metropolis-Hastings, the published ones, the same for all workers."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxc.topology.kinds import TOPOLOGIES, changes, directed, located, pattern, period, refusal
from relaxc.topology.topology import Topology, from_plain, to_plain
from relaxc.topology.weights import matrix, own_weight, partners, weights

PLAIN = [Topology(name) for name, kind in TOPOLOGIES.items() if name not in ("edges", "arrows") and not kind.wraps]
WRAPPED = [Topology(w, (t,)) for w in ("lazy", "shuffled", "ready_pairs") for t in PLAIN]
PATH = Topology("edges", ((0, 1), (2, 1)))
GIVEN = Topology("edges", ((0, 1, 0.5), (1, 2, 0.25)))
HIERARCHIES = [Topology("hierarchy", (t, inner)) for t in [*PLAIN, Topology("lazy", (PATH,))] for inner in (1, 2, 3)]
EVERY = [*PLAIN, *WRAPPED, *HIERARCHIES, PATH, GIVEN, Topology("lazy", (Topology("shuffled", (GIVEN,)),))]
DIRECTED = ("exponential", "one_peer_exponential")


def cases(topologies):
    return [pytest.param(t, n, id=f"{t}-{n}") for t in topologies for n in range(1, 18) if refusal(t, n) is None]


def test_what_is_directed_is_said_to_be():
    assert [t.name for t in PLAIN if directed(t)] == list(DIRECTED)
    assert directed(Topology("lazy", (Topology("exponential"),)))
    seven = matrix(Topology("exponential"), 7, 0, 0)
    assert not np.array_equal(seven, seven.T)


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_rows_are_what_is_heard_and_kept(topology):
    """In rank order, with the worker itself, without other zeros. test_every_count.py has the rest of what holds for all."""
    for workers in (n for n in range(1, 18) if refusal(topology, n) is None):
        for round in range(pattern(topology, workers) + 1):
            for rank in range(workers):
                row = weights(topology, workers, round, 3, rank)
                assert [peer for peer, _ in row] == sorted({rank, *partners(topology, workers, round, 3, rank)})
                assert all(weight > 0 for peer, weight in row if peer != rank)
                assert own_weight(topology, workers, round, 3, rank) == dict(row)[rank]


def edges_by_hand(name, n):
    """Each graph's definition, tested pair by pair."""
    rows = max(a for a in range(1, n + 1) if n % a == 0 and a * a <= n)
    columns = n // rows

    def adjacent(i, j):
        if name == "ring":
            return (i - j) % n in (1, n - 1)
        if name == "chain":
            return abs(i - j) == 1
        if name == "star":
            return 0 in (i, j)
        if name == "complete":
            return True
        if name == "hypercube":
            return (i ^ j).bit_count() == 1
        (a, b), (c, d) = divmod(i, columns), divmod(j, columns)
        return (a == c and (b - d) % columns in (1, columns - 1)) or (b == d and (a - c) % rows in (1, rows - 1))

    return [[i != j and adjacent(i, j) for j in range(n)] for i in range(n)]


@pytest.mark.parametrize(
    ("topology", "workers"),
    cases([t for t in PLAIN if t.name in ("ring", "chain", "star", "complete", "hypercube", "torus")]),
)
def test_fixed_graphs_have_metropolis_weights(topology, workers):
    adjacent = np.array(edges_by_hand(topology.name, workers)).reshape(workers, workers)
    degree = adjacent.sum(1)
    expected = np.where(adjacent, 1 / (1 + np.maximum(degree[:, None], degree[None, :])), 0)
    expected += np.diag(1 - expected.sum(1))
    np.testing.assert_allclose(matrix(topology, workers, 0, 0), expected, rtol=0, atol=1e-15)


def test_own_weights_are_rounded_once():
    assert weights(Topology("ring"), 5, 0, 0, 0) == ((0, 1 / 3), (1, 1 / 3), (4, 1 / 3))
    assert own_weight(Topology("star"), 5, 0, 0, 3) == 4 / 5
    assert own_weight(Topology("torus"), 9, 0, 0, 0) == 1 / 5
    assert own_weight(Topology("star"), 7, 0, 0, 0) == 1 / 7


@pytest.mark.parametrize("workers", range(1, 18))
def test_exponential_graphs_are_the_published_ones(workers):
    """Ying et al. 2021: W[i, j] = 1 / (ceil(log2 n) + 1) where i = j or log2((j - i) mod n) is whole; one of these hops a
    round with 1/2 for one_peer."""
    hops = int(np.ceil(np.log2(workers)))
    static = np.eye(workers) / (hops + 1)
    for hop in range(hops):
        one = np.eye(workers) / 2
        for i in range(workers):
            static[i, (i + 2**hop) % workers] += 1 / (hops + 1)
            one[i, (i + 2**hop) % workers] += 1 / 2
        np.testing.assert_array_equal(matrix(Topology("one_peer_exponential"), workers, hop, 0), one)
        np.testing.assert_array_equal(matrix(Topology("one_peer_exponential"), workers, hop + hops, 0), one)
    np.testing.assert_allclose(matrix(Topology("exponential"), workers, 0, 0), static, rtol=1e-15)


@pytest.mark.parametrize("workers", [2, 4, 6, 16])
def test_shift_one_is_the_published_one(workers):
    """Bagua, n even: r < n/2 meets (s + r) mod (n/2) + n/2, the others (r - n/2 - s) mod (n/2)."""
    half = workers // 2
    for s in range(2 * half):
        for r in range(workers):
            peer = (s + r) % half + half if r < half else (r - half - s) % half
            assert dict(weights(Topology("shift_one"), workers, s, 0, r)) == {r: 0.5, peer: 0.5}


@pytest.mark.parametrize("workers", [1, 3, 5, 9])
def test_shift_one_of_an_odd_number_leaves_out_each_of_the_first_half_once(workers):
    half = (workers + 1) // 2
    assert period(Topology("shift_one"), workers) == half
    alone = [r for s in range(half) for r in range(workers) if not partners(Topology("shift_one"), workers, s, 0, r)]
    assert sorted(alone) == list(range(half))


PAIRING = [Topology("random_pairs"), Topology("shift_one"), Topology("shuffled", (Topology("shift_one"),))]


@pytest.mark.parametrize(("topology", "workers"), cases(PAIRING))
def test_pairs_are_a_matching(topology, workers):
    for round in range(10):
        peers = [partners(topology, workers, round, 5, rank) for rank in range(workers)]
        assert Counter(map(len, peers)) == Counter(
            {1: workers // 2 * 2, 0: workers % 2} if workers % 2 else {1: workers}
        )
        for rank, mine in enumerate(peers):
            assert all(peers[peer] == (rank,) for peer in mine)
            assert own_weight(topology, workers, round, 5, rank) == (0.5 if mine else 1)


@pytest.mark.parametrize(("workers", "matchings"), [(4, 3), (5, 15), (6, 15)])
def test_all_matchings_are_equally_likely(workers, matchings):
    """6000 rounds; chi square within 5 standard deviations of its mean, matchings - 1."""
    rounds = 6000
    seen = Counter(
        tuple(partners(Topology("random_pairs"), workers, round, 11, rank) for rank in range(workers))
        for round in range(rounds)
    )
    assert len(seen) == matchings
    expected = rounds / matchings
    chi = sum((count - expected) ** 2 / expected for count in seen.values())
    assert chi < matchings - 1 + 5 * (2 * (matchings - 1)) ** 0.5


def test_random_rounds_are_a_function_of_seed_and_round():
    def pairs(seed, round):
        return [weights(Topology("random_pairs"), 16, round, seed, rank) for rank in range(16)]

    assert pairs(1, 4) == pairs(1, 4)
    assert pairs(1, 4) != pairs(1, 5)
    assert pairs(1, 4) != pairs(2, 4)
    assert pairs(2**64 - 1, 10**9) != pairs(0, 10**9)


@given(st.integers(1, 40), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_any_seed_and_round_give_a_matching(workers, seed, round):
    w = matrix(Topology("random_pairs"), workers, round, seed)
    assert np.array_equal(w, w.T) and np.array_equal(w @ w, w) and (np.diag(w) == 1).sum() == workers % 2


def test_lazy_keeps_half():
    for topology in PLAIN:
        lazy = matrix(Topology("lazy", (topology,)), 4, 1, 9)
        np.testing.assert_array_equal(lazy, (np.eye(4) + matrix(topology, 4, 1, 9)) / 2)


def test_shuffled_numbers_workers_anew_in_each_period():
    """Three rounds of one_peer_exponential of 8 are one numbering: there is one permutation that explains all three."""
    inner, shuffled = Topology("one_peer_exponential"), Topology("shuffled", (Topology("one_peer_exponential"),))
    numberings = []
    for first in (0, 3, 6):
        hears = [partners(shuffled, 8, first, 2, rank)[0] for rank in range(8)]  # round 0: who plays the next part
        for start in range(8):
            players = [start]
            while len(players) < 8:
                players.append(hears[players[-1]])
            if all(
                np.array_equal(matrix(shuffled, 8, first + r, 2)[np.ix_(players, players)], matrix(inner, 8, r, 0))
                for r in range(3)
            ):
                numberings.append(tuple(hears))
                break
    assert len(set(numberings)) == 3


def test_periods():
    assert [period(Topology("ring"), n) for n in (1, 8)] == [1, 1]
    assert [period(Topology("one_peer_exponential"), n) for n in (1, 2, 3, 4, 5, 8, 9)] == [1, 1, 2, 2, 3, 3, 4]
    assert [period(Topology("shift_one"), n) for n in (1, 2, 3, 8)] == [1, 1, 2, 4]
    assert [period(Topology("random_pairs"), n) for n in (1, 2, 3, 8)] == [1, 1, None, None]
    assert period(Topology("shuffled", (Topology("ring"),)), 5) is None
    assert period(Topology("lazy", (Topology("shift_one"),)), 6) == 3


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_only_what_changes_is_said_to(topology):
    if topology.name == "ready_pairs":  # whose pairs change, in a graph that need not
        assert changes(topology)
        return
    differs = any(
        not np.array_equal(matrix(topology, n, 0, 0), matrix(topology, n, round, 0))
        for n in range(1, 10)
        if refusal(topology, n) is None
        for round in range(1, 5)
    )
    if not (topology.name == "shuffled" and topology.arguments == (Topology("complete"),)):
        assert changes(topology) == differs


@pytest.mark.parametrize(("topology", "workers"), cases(PLAIN))
def test_rounds_come_again_after_a_period(topology, workers):
    again = period(topology, workers)
    if again is not None:
        for round in range(again):
            assert weights(topology, workers, round, 1, 0) == weights(topology, workers, round + 5 * again, 2, 0)


def test_refusals_say_which_counts_there_are():
    assert refusal(Topology("hypercube"), 6) == "a hypercube has a power of two of workers, such as 4 or 8, not 6"
    assert refusal(Topology("torus"), 7) == (
        "a torus has rows and columns of two workers or more, such as 6 = 2 x 3 or 8 = 2 x 4, not 7"
    )
    assert (
        refusal(Topology("torus"), 2) == "a torus has rows and columns of two workers or more, such as 4 = 2 x 2, not 2"
    )
    assert refusal(GIVEN, 2) == "the edges name worker 2, so there must be 3 workers or more, not 2"
    assert refusal(Topology("lazy", (Topology("hypercube"),)), 3) == refusal(Topology("hypercube"), 3)
    with pytest.raises(ValueError, match="power of two"):
        weights(Topology("hypercube"), 6, 0, 0, 0)


def test_which_counts_are_refused():
    primes = {2, 3, 5, 7, 11, 13, 17}
    assert {n for n in range(1, 18) if refusal(Topology("torus"), n)} == primes
    assert {n for n in range(1, 18) if not refusal(Topology("hypercube"), n)} == {1, 2, 4, 8, 16}
    for topology in PLAIN:
        if topology.name not in ("torus", "hypercube"):
            assert not any(refusal(topology, n) for n in range(1, 300))


@pytest.mark.parametrize("topology", EVERY, ids=str)
def test_plain_data_and_back_through_json(topology):
    import json

    assert from_plain(json.loads(json.dumps(to_plain(topology)))) == topology


def test_plain_data_is_name_and_arguments():
    assert to_plain(Topology("lazy", (GIVEN,))) == ["lazy", [["edges", [[0, 1, 0.5], [1, 2, 0.25]]]]]


def test_a_hierarchy_is_the_kronecker_product_with_the_mean_of_a_machine():
    for inner in (1, 2, 3):
        for round in range(3):
            within = np.full((inner, inner), 1 / inner)
            wanted = np.kron(matrix(Topology("shift_one"), 4, round, 7), within)
            found = matrix(Topology("hierarchy", (Topology("shift_one"), inner)), 4 * inner, round, 7)
            np.testing.assert_allclose(found, wanted, rtol=1e-15)


def test_a_hierarchy_that_leaves_machines_open():
    ring = Topology("ring")
    open_, written = Topology("hierarchy", (ring,)), Topology("hierarchy", (ring, 2))
    assert located(open_, 2) == written and located(written, 4) == written and located(ring, 4) == ring
    assert (matrix(open_, 6, 0, 7) == matrix(ring, 6, 0, 7)).all()
    assert str(written) == "hierarchy(ring, inner = 2)" and from_plain(to_plain(written)) == written


def test_machines_must_be_whole_and_their_topology_must_have_them():
    assert refusal(Topology("hierarchy", (Topology("ring"), 4)), 6) == (
        "6 workers are not a whole number of machines with 4 workers each"
    )
    why = refusal(Topology("hierarchy", (Topology("hypercube"), 2)), 6)
    assert why is not None and why.startswith("of machines with 2 workers each: a hypercube has a power of two")
