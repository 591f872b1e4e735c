"""Pictures of topologies, drawn here by hand."""

from __future__ import annotations

import pytest

from relaxc.topology.drawing import _meetings, draw
from relaxc.topology.kinds import TOPOLOGIES, refusal
from relaxc.topology.topology import Topology

PICTURES = [
    (Topology("ring"), 5, "0 - 1 - 2 - 3 - 4 - (0)"),
    (Topology("ring"), 2, "0 - 1"),
    (Topology("ring"), 1, "0, alone"),
    (Topology("chain"), 3, "0 - 1 - 2"),
    (Topology("ring"), 18, "0 - 1 - 2 - 3 - 4 - 5 - 6 - 7 - 8 - 9 - 10 - 11 - 12 - 13 - 14 - 15 -\n16 - 17 - (0)"),
    (Topology("torus"), 6, "0 - 1 - 2 - (0)\n|   |   |\n3 - 4 - 5 - (3)"),
    (
        Topology("torus"),
        12,
        (
            " 0 -  1 -  2 -  3 - (0)\n"
            " |    |    |    |\n"
            " 4 -  5 -  6 -  7 - (4)\n"
            " |    |    |    |\n"
            " 8 -  9 - 10 - 11 - (8)\n"
            " |    |    |    |\n"
            "(0)  (1)  (2)  (3)"
        ),
    ),
    (Topology("complete"), 4, "each of 0 to 3 with all others, 1/4 each"),
    (
        Topology("star"),
        3,
        "0 - 1, 2 (1/3); own weight 1/3\n1 - 0 (1/3); own weight 0.667\n2 - 0 (1/3); own weight 0.667",
    ),
    (
        Topology("edges", ((0, 1, 0.5), (1, 2, 0.25))),
        4,
        (
            "0 - 1 (1/2); own weight 1/2\n1 - 0 (1/2), 2 (1/4); own weight 1/4\n2 - 1 (1/4); own weight 0.75\n"
            "3 - nobody; own weight 1"
        ),
    ),
    (
        Topology("exponential"),
        3,
        "0 hears 1, 2 (1/3); own weight 1/3\n1 hears 0, 2 (1/3); own weight 1/3\n2 hears 0, 1 (1/3); own weight 1/3",
    ),
    (
        Topology("one_peer_exponential"),
        4,
        "round 0: 0<1 1<2 2<3 3<0\nround 1: 0<2 1<3 2<0 3<1\nthe same again after 2 rounds",
    ),
    (Topology("shift_one"), 3, "round 0: 0-2, alone: 1\nround 1: 1-2, alone: 0\nthe same again after 2 rounds"),
    (Topology("lazy", (Topology("chain"),)), 2, "0 - 1\nlazy: each worker keeps half of its own, (I + W) / 2"),
]


@pytest.mark.parametrize(("topology", "workers", "picture"), PICTURES, ids=[f"{t}-{n}" for t, n, _ in PICTURES])
def test_pictures(topology, workers, picture):
    assert draw(topology, workers) == picture


def test_of_many_who_are_alone_some_are_named():
    assert _meetings([((rank, 1.0),) for rank in range(40)], False) == f"alone: {' '.join(map(str, range(16)))} ..."


def test_random_rounds_say_that_they_are_drawn():
    lines = draw(Topology("random_pairs"), 4).splitlines()
    assert [line.split(":")[0] for line in lines[:4]] == ["round 0", "round 1", "round 2", "round 3"]
    assert lines[4] == "drawn anew each round, from the seed (here 0)"
    shuffled = draw(Topology("shuffled", (Topology("one_peer_exponential"),)), 8)
    assert shuffled.endswith("drawn anew every 3 rounds, from the seed (here 0)")


@pytest.mark.parametrize(
    "name", [n for n, kind in TOPOLOGIES.items() if n not in ("edges", "arrows") and not kind.wraps]
)
@pytest.mark.parametrize("workers", [1, 2, 9, 16, 64, 256])
def test_a_picture_stays_small(name, workers):
    if refusal(Topology(name), workers) is None:
        lines = draw(Topology(name), workers).splitlines()
        assert len(lines) <= 70
        assert max(map(len, lines)) <= 160
