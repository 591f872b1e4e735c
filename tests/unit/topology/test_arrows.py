"""Directed edges from a file: mistakes with their lines, column stochastic rows, what is connected, how fast it mixes."""

from __future__ import annotations

import numpy as np
import pytest

from relaxc.topology.arrows import arrows_of_text
from relaxc.topology.drawing import draw
from relaxc.topology.edges import EdgesError
from relaxc.topology.kinds import changes, directed, doubly_stochastic, period, refusal
from relaxc.topology.spectrum import connected, spectral_gap
from relaxc.topology.topology import Topology, from_plain, to_plain
from relaxc.topology.trees import never_a_tree, not_a_tree
from relaxc.topology.weights import matrix, own_weight, partners, receivers

UNEVEN = Topology("arrows", ((0, 1), (1, 2), (2, 0), (0, 2)))
GIVEN = Topology("arrows", ((0, 1, 0.5), (1, 2, 1.0), (2, 0, 0.25)))
FOR_RECEIVERS = "; these add up for each receiver, with which the mean of the workers would not be kept"
ROUND = Topology("arrows", ((0, 1), (1, 2), (2, 0)))


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("", 1, "no edge in this file; an edge is a line of two ranks, such as 0 1"),
        ("0 1\n1 0\n0 1", 3, "the arrow 0 1 is in line 1 already"),
        ("0 1 0.5\n0 2 0.5\n0 3 0.1", 3, f"what worker 0 sends adds up to 1.1 here, and 1 is all it has{FOR_RECEIVERS}"),
        ("0 1 0.6\n2 1 0.6\n0 2 0.5", 3, "what worker 0 sends adds up to 1.1 here, and 1 is all it has"),
        ("1 1", 1, "worker 1 is not its own neighbour; its own weight is what the others leave"),
    ],
)  # fmt: skip
def test_mistakes(text: str, line: int, message: str) -> None:
    with pytest.raises(EdgesError) as caught:
        arrows_of_text(text)
    assert (caught.value.line, caught.value.message) == (line, message)


def test_a_line_is_sender_receiver_weight() -> None:
    assert arrows_of_text("# one way\n0 1\n1 0 # and back") == ((0, 1), (1, 0))
    assert arrows_of_text("0 1 1") == ((0, 1, 1.0),)


def test_a_sender_shares_out_what_it_has() -> None:
    """By hand: 0 sends to 1 and 2, 1 to 2, 2 to 0; with weights a sender keeps what they leave."""
    third, half = 1 / 3, 1 / 2
    np.testing.assert_array_equal(matrix(UNEVEN, 3, 0, 0), [[third, 0, half], [third, half, 0], [third, half, half]])
    np.testing.assert_array_equal(
        matrix(GIVEN, 4, 5, 1), [[0.5, 0, 0.25, 0], [0.5, 0, 0, 0], [0, 1, 0.75, 0], [0, 0, 0, 1]]
    )
    for topology in (UNEVEN, GIVEN, ROUND, Topology("lazy", (UNEVEN,)), Topology("shuffled", (GIVEN,))):
        for workers in range(3, 9):
            for round in range(3):
                np.testing.assert_allclose(matrix(topology, workers, round, 7).sum(0), 1, rtol=1e-15)


def test_who_hears_whom() -> None:
    assert [partners(UNEVEN, 3, 0, 0, rank) for rank in range(3)] == [(2,), (0,), (0, 1)]
    assert [receivers(UNEVEN, 3, 0, 0, rank) for rank in range(3)] == [(1, 2), (2,), (0,)]
    assert [own_weight(GIVEN, 3, 0, 0, rank) for rank in range(3)] == [0.5, 0, 0.75]
    assert (directed(UNEVEN), changes(UNEVEN), period(UNEVEN, 3)) == (True, False, 1)
    assert from_plain(to_plain(GIVEN)) == GIVEN


def test_only_even_ones_are_doubly_stochastic() -> None:
    assert [doubly_stochastic(t) for t in (UNEVEN, GIVEN, ROUND, Topology("lazy", (UNEVEN,)))] == [
        False,
        False,
        True,
        False,
    ]
    assert doubly_stochastic(Topology("arrows", ((0, 1, 0.3), (1, 0, 0.3))))
    assert not doubly_stochastic(Topology("arrows", ((0, 1, 0.3), (1, 0, 0.4))))
    assert doubly_stochastic(Topology("exponential")) and doubly_stochastic(Topology("edges", ((0, 1),)))


def test_connected_means_strongly() -> None:
    assert connected(UNEVEN, 3) and connected(Topology("arrows", ((0, 1), (1, 0))), 2)
    assert not connected(UNEVEN, 4)
    assert not connected(Topology("arrows", ((0, 1), (0, 2))), 3), "nobody is heard by 0"
    assert not connected(Topology("arrows", ((1, 0), (2, 0))), 3), "nobody hears 0"


def test_the_gap_is_of_the_second_eigenvalue() -> None:
    """Of two workers that give away a and b the eigenvalues are 1 and 1 - a - b."""
    assert spectral_gap(Topology("arrows", ((0, 1, 0.3), (1, 0, 0.4))), 2) == pytest.approx(0.7)
    assert spectral_gap(ROUND, 3) == pytest.approx(1 - abs(0.5 + 0.5 * np.exp(2j * np.pi / 3)))
    powers = np.linalg.matrix_power(matrix(UNEVEN, 3, 0, 0), 20)
    left = np.abs(powers - powers[:, :1]).max() ** (1 / 20)
    assert 1 - spectral_gap(UNEVEN, 3) == pytest.approx(left, rel=0.1)


@pytest.mark.parametrize("workers", range(2, 65))
def test_drawn_graphs_of_up_to_64_workers(workers: int) -> None:
    draw = np.random.default_rng(workers)
    more = (tuple(map(int, draw.choice(workers, 2, replace=False))) for _ in range(workers))
    arrows = {*((i, (i + 1) % workers) for i in range(workers)), *more}
    topology = Topology("arrows", tuple(sorted(arrows)))
    w = matrix(topology, workers, 0, 0)
    assert np.abs(w.sum(0) - 1).max() < 1e-14 and (w >= 0).all()
    assert {(j, i) for i in range(workers) for j in partners(topology, workers, 0, 0, i)} == arrows
    assert {(i, j) for i in range(workers) for j in receivers(topology, workers, 0, 0, i)} == arrows
    assert connected(topology, workers)
    assert doubly_stochastic(topology) == bool(np.abs(w.sum(1) - 1).max() < 1e-9)
    second = sorted(np.abs(np.linalg.eigvals(w)))[-2]
    gap = spectral_gap(topology, workers)
    assert doubly_stochastic(topology) or gap == pytest.approx(1 - second, abs=1e-9)


def test_too_few_workers_and_the_picture() -> None:
    assert refusal(UNEVEN, 2) == "the arrows name worker 2, so there must be 3 workers or more, not 2"
    assert str(UNEVEN) == "arrows(4 arrows)"
    assert draw(UNEVEN, 3).splitlines() == [
        "0 hears 2 (1/2); own weight 1/3",
        "1 hears 0 (1/3); own weight 1/2",
        "2 hears 0 (1/3), 1 (1/2); own weight 1/2",
    ]


def test_trees() -> None:
    assert never_a_tree(Topology("chain")) is None and never_a_tree(Topology("star")) is None
    assert never_a_tree(Topology("ring")) == "ring is no tree"
    assert never_a_tree(Topology("edges", ((0, 1), (1, 2), (0, 2)))) == "edges(3 edges) has a circle"
    assert never_a_tree(Topology("edges", ((0, 1), (2, 3)))) == "edges(2 edges) leaves some of 4 workers apart"
    tree = Topology("edges", ((0, 2), (2, 1), (2, 3)))
    assert never_a_tree(tree) is None
    assert not_a_tree(tree, 4) is None
    assert not_a_tree(tree, 5) == "edges(3 edges) leaves some of 5 workers apart"
    assert not_a_tree(Topology("chain"), 1) is None
