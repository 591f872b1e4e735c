"""What is drawn: shared, with the right frequencies, and no two draws alike."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxc.program.drawn import chosen
from relaxc.wire.dither import parameter_keys, shared_key
from relaxc.wire.draws import bits, geometric, head_start, permutation


@pytest.mark.parametrize("mean", [1.5, 4, 100])
def test_geometric_runs_once_in_mean_times(mean):
    """200000 draws, within 5 standard deviations."""
    count, p = 200_000, 1 / mean
    runs = sum(geometric(5, 1, c, mean) for c in range(count))
    assert abs(runs - count * p) < 5 * (count * p * (1 - p)) ** 0.5


def test_gaps_between_runs_are_geometric():
    """P(gap = g) = p (1 - p)^(g - 1): chi square over gaps 1 to 12, within 5 standard deviations of its mean."""
    runs = [c for c in range(200_000) if geometric(6, 2, c, 4)]
    gaps = Counter(b - a for a, b in pairwise(runs))
    total = sum(gaps.values())
    expected = {g: total * 0.25 * 0.75 ** (g - 1) for g in range(1, 13)}
    chi = sum((gaps[g] - e) ** 2 / e for g, e in expected.items())
    assert chi < 12 + 5 * 24**0.5


@pytest.mark.parametrize(
    ("mean", "always"), [(1, True), (0, True), (-3, True), (float("inf"), False), (float("nan"), False)]
)
def test_geometric_at_its_ends(mean, always):
    assert {geometric(1, 1, c, mean) for c in range(200)} == {always}


def test_draws_depend_on_each_coordinate():
    def runs(seed, block):
        return [geometric(seed, block, c, 2) for c in range(64)]

    assert runs(1, 1) == runs(1, 1)
    assert len({tuple(runs(seed, block)) for seed in range(4) for block in range(4)}) == 16


def test_bits_do_not_repeat():
    assert len({bits(seed, a, b) for seed in range(10) for a in range(10) for b in range(100)}) == 10_000


def test_permutations_are_equally_likely():
    """24 orders of 4 in 24000 draws; chi square within 5 standard deviations of its mean, 23."""
    seen = Counter(tuple(permutation(4, 9, n)) for n in range(24_000))
    assert len(seen) == 24
    assert sum((count - 1000) ** 2 / 1000 for count in seen.values()) < 23 + 5 * 46**0.5


@given(st.integers(0, 300), st.integers(0, 2**64 - 1))
def test_a_permutation_has_each_once(count, seed):
    assert sorted(permutation(count, seed)) == list(range(count))


@given(st.integers(1, 200), st.integers(1, 200))
def test_head_starts_are_spread_evenly(total, period):
    starts = [head_start(n, total, period) for n in range(total)]
    assert starts[0] == 0 and max(starts) < period and starts == sorted(starts)
    counts = Counter(starts)
    shares = [counts[start] for start in range(period)]
    assert max(shares) - min(shares) <= 1


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=50), st.integers(1, 50))
def test_head_starts_level_the_elements_that_have_their_turn(sizes, period):
    """To a largest parameter."""
    total = sum(sizes)
    turns = Counter()
    for size, before in zip(sizes, accumulate(sizes, initial=0), strict=False):
        turns[head_start(before, total, period)] += size
    assert max(turns.values()) <= total / period + max(sizes)


def test_head_starts_of_four_in_a_hundred():
    assert [head_start(n, 4, 100) for n in range(4)] == [0, 25, 50, 75]
    assert [head_start(n, 4, p) for n, p in ((3, 2.5), (3, 0.5), (3, float("inf")), (3, float("nan")))] == [1, 0, 0, 0]


def test_all_elements_of_a_block_are_chosen_alike():
    """20000 iterations, in a whole block of ten and in a short last one of seven, within 5 standard deviations."""
    iterations, block = 20_000, 10
    both = np.arange(2, dtype=np.uint64)
    counts: Counter[int] = Counter()
    for t in range(iterations):
        keys = parameter_keys(shared_key(5, t), 3)
        counts.update(block * n + int(place) for n, place in enumerate(chosen(both, keys, block)))
    expected = iterations / block
    assert all(abs(counts[place] - expected) < 5 * (expected * (1 - 1 / block)) ** 0.5 for place in range(17))
