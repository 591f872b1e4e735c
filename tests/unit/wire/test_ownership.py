"""Every element has one owner, shares are whole blocks and nearly equal, leftovers spread over the workers."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from relaxc.wire.ownership import owned


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
