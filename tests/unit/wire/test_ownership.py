"""Every element has one owner, shares are whole blocks and nearly equal, leftovers spread over the workers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from relaxc.wire.layout import Field, Layout, WireType
from relaxc.wire.ownership import owned, shares


@pytest.mark.parametrize("workers", [1, 2, 3, 5, 8])
@pytest.mark.parametrize(("elements", "block"), [(0, 512), (1, 512), (511, 512), (512, 512), (5000, 512), (5000, 7)])
def test_shares_are_a_partition_at_block_borders(workers: int, elements: int, block: int) -> None:
    ranges = [r for r in owned(3, elements, block, workers) if r[1] > r[0]]
    assert sum(end - start for start, end in ranges) == elements
    covered = sorted(ranges)
    assert all(a[1] == b[0] for a, b in pairwise(covered))
    assert all(start % block == 0 for start, _ in ranges)
    blocks = [-(-(end - start) // block) for start, end in owned(3, elements, block, workers)]
    assert max(blocks) - min(blocks) <= 1


def test_small_parameters_are_dealt_round() -> None:
    """300 parameters of one block each among 4 workers: 75 each."""
    owners = Counter(next(w for w, (a, b) in enumerate(owned(p, 10, 512, 4)) if b > a) for p in range(300))
    assert set(owners.values()) == {75}


def layout(block: int, unit: str) -> Layout:
    return Layout(block, (Field("value", WireType("f32"), True),), unit)


@pytest.mark.parametrize("elements", [0, 1, 511, 512, 100_000])
def test_a_tensor_has_one_owner(elements: int) -> None:
    for number in range(4):
        ranges = [r for r in shares(number, elements, layout(0, "tensor"), 3) if r[1] > r[0]]
        assert ranges == ([(0, elements)] if elements else [])


def test_tensors_are_dealt_round() -> None:
    owners = [[b > a for a, b in shares(n, 10, layout(0, "tensor"), 4)].index(True) for n in range(8)]
    assert sorted(owners[:4]) == [0, 1, 2, 3] and owners[4:] == owners[:4]


def test_chunks_are_shares_at_fixed_borders() -> None:
    assert shares(0, 1500, layout(0, "chunk"), 2) == [(0, 512), (512, 1500)]
    assert shares(3, 5000, layout(0, "chunk"), 3) == owned(3, 5000, 512, 3)


def test_blocks_are_owned_as_before() -> None:
    assert shares(2, 5000, layout(7, "block"), 3) == owned(2, 5000, 7, 3)
