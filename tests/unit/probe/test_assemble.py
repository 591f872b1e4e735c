"""From times to a network, and from a network to a topology."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from relaxc.probe.assemble import Measured, assemble, medians
from relaxc.probe.links import SIZES
from relaxc.probe.proposal import best_ring, propose, slowest
from relaxc.schedule.network import Coding, Line, Network
from relaxc.topology.edges import edges_of_text

FAST, USUAL, SLOW = Line(1e-5, 1e-10), Line(5e-5, 8e-9), Line(2e-4, 8e-8)
WORK = Line(2e-5, 3e-10)


def times(line: Line, factor: float = 1.0) -> dict[int, float]:
    return {size: factor * line.at(size) for size in SIZES}


def measured(workers: int, per_machine: int, line_of, codings=({},)) -> Measured:
    pairs = {pair: times(line_of(*pair)) for pair in permutations(range(workers), 2)}
    return Measured(workers, per_machine, pairs, times(SLOW), times(WORK), codings)


def near(line: Line | None, other: Line) -> bool:
    return line is not None and line.fixed == pytest.approx(other.fixed) and line.each == pytest.approx(other.each)


def test_links_of_one_kind() -> None:
    network = assemble(measured(4, 1, lambda s, r: USUAL)).network
    assert near(network.link, USUAL) and near(network.reduce, SLOW) and near(network.wire, WORK)
    assert (network.workers, network.per_machine, network.inner, network.pairs) == (4, 1, None, {})


def test_links_within_machines() -> None:
    network = assemble(measured(4, 2, lambda s, r: FAST if s // 2 == r // 2 else USUAL)).network
    assert near(network.link, USUAL) and near(network.inner, FAST) and not network.pairs


def test_one_machine_has_the_link_within_it() -> None:
    network = assemble(measured(3, 3, lambda s, r: FAST)).network
    assert near(network.link, FAST) and near(network.inner, FAST)


def test_a_link_that_differs_has_its_own_line() -> None:
    made = assemble(measured(4, 1, lambda s, r: SLOW if (s, r) == (2, 1) else USUAL))
    assert list(made.network.pairs) == [(2, 1)] and near(made.network.pairs[2, 1], SLOW)
    assert near(made.network.link, USUAL) and near(made.fits["link 2 to 1"].line, SLOW)


def test_codecs_are_the_medians_of_workers() -> None:
    codings = [{"bf16": (times(FAST, f), times(USUAL, f))} for f in (1.0, 3.0, 0.5)]
    network = assemble(measured(3, 1, lambda s, r: USUAL, codings)).network
    assert list(network.codings) == ["bf16"] and isinstance(network.codings["bf16"], Coding)
    assert near(network.codings["bf16"].encode, FAST) and near(network.codings["bf16"].decode, USUAL)


def test_medians_are_of_sizes_that_all_have() -> None:
    assert medians([{1: 1.0, 2: 5.0}, {1: 3.0, 2: 6.0, 3: 9.0}, {1: 2.0, 2: 1.0}]) == {1: 2.0, 2: 5.0}


# --- proposals


def network(workers: int, line_of) -> Network:
    pairs = {pair: line_of(*pair) for pair in permutations(range(workers), 2)}
    return Network(USUAL, workers, pairs=pairs)


def test_links_alike_propose_nothing() -> None:
    assert propose(network(4, lambda s, r: USUAL), 4) == []
    assert propose(network(4, lambda s, r: Line(0, 8e-9 * (1.9 if s == 0 else 1))), 4) == []
    assert propose(network(2, lambda s, r: USUAL), 2) == []


def test_fast_runs_propose_a_hierarchy() -> None:
    said = propose(network(6, lambda s, r: FAST if s // 3 == r // 3 else SLOW), 6)
    assert "route = hierarchy(inner = 3)" in said[-1] and "within each 3 workers in a row" in said[-2]


def test_a_ring_along_fast_links() -> None:
    """Fast links are 0-2-4-1-3-0: a ring in rank order has slow ones only."""
    fast = {frozenset(pair) for pair in ((0, 2), (2, 4), (4, 1), (1, 3), (3, 0))}
    said = propose(network(5, lambda s, r: FAST if frozenset((s, r)) in fast else SLOW), 5)
    edges = edges_of_text("\n".join(said[3:]))
    assert {frozenset(edge) for edge in edges} == fast
    assert "takes 21.2 ms a message" in said[1] and "36.2 us" in said[1]


def test_where_no_ring_helps_that_is_said() -> None:
    """One worker's links are all slow."""
    said = propose(network(4, lambda s, r: SLOW if 0 in (s, r) else FAST), 4)
    assert "no ring avoids the slow links" in said[1]


def test_the_best_ring_is_the_best() -> None:
    draw = np.random.default_rng(3)
    for _ in range(5):
        cost = draw.uniform(1, 10, (6, 6))
        cost = np.maximum(cost, cost.T).tolist()
        best = min(slowest((0, *rest), cost) for rest in permutations(range(1, 6)))
        assert slowest(best_ring(cost), cost) == best


def test_a_ring_of_many_is_found() -> None:
    """Twelve workers round a circle in an order of their own: the links of neighbours are fast."""
    order = [0, 7, 3, 11, 5, 9, 1, 10, 4, 8, 2, 6]
    place = {worker: at for at, worker in enumerate(order)}
    apart = [[min((place[i] - place[j]) % 12, (place[j] - place[i]) % 12) for j in range(12)] for i in range(12)]
    assert slowest(best_ring(apart), apart) == 1
