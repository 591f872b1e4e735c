"""Who is measured with whom."""

from __future__ import annotations

import itertools

import pytest

from relaxc.probe.pairs import rounds, same_machine, tournament


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_few_workers_go_one_direction_at_a_time(workers: int) -> None:
    found = rounds(workers, 1)
    assert all(len(together) == 1 for together in found)
    assert sorted(pair for (pair,) in found) == sorted(itertools.permutations(range(workers), 2))


@pytest.mark.parametrize("workers", [9, 16, 33])
def test_many_workers_go_together_and_each_direction_once(workers: int) -> None:
    found = rounds(workers, 1)
    for together in found:
        busy = [worker for pair in together for worker in pair]
        assert len(busy) == len(set(busy))
    assert sorted(itertools.chain(*found)) == sorted(itertools.permutations(range(workers), 2))
    assert len(found) == 2 * (workers - 1 + workers % 2)


def test_one_worker_stands_for_its_machine() -> None:
    found = rounds(16, 4)
    pairs = set(itertools.chain(*found))
    across = {pair for pair in pairs if not same_machine(pair, 4)}
    assert across == set(itertools.permutations((0, 4, 8, 12), 2))
    assert pairs - across == {(0, 1), (1, 0), (4, 5), (5, 4), (8, 9), (9, 8), (12, 13), (13, 12)}


def test_a_tournament_of_nobody_and_of_two() -> None:
    assert tournament([]) == [] and tournament([3, 5]) == [[(3, 5)]]
