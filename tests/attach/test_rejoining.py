"""How a worker that is started finds out whether it comes back, in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loops import plan
from torch._C._distributed_c10d import HashStore, PrefixStore

import relaxc
from relaxc.attach.roll import Roll, change_roll, read_roll
from relaxc.errors import ExchangeError

PAIRS = "relax weights { topology = random_pairs, delay = async }"


def test_there_is_no_run_before_all_have_attached() -> None:
    assert relaxc.rejoining(HashStore(), 1, 4) is None


@pytest.mark.parametrize(("rank", "workers"), [(4, 4), (-1, 2), (0, 0)])
def test_a_rank_that_there_is_not(rank: int, workers: int) -> None:
    with pytest.raises(ExchangeError, match="RX0607"):
        relaxc.rejoining(HashStore(), rank, workers)


def attach(rejoin: Any, **more: Any) -> None:
    import torch

    model = torch.nn.Linear(3, 2)
    plan(PAIRS).attach(model, torch.optim.SGD(model.parameters(), 0.1), rejoin=rejoin, timeout=5, **more)


def test_a_plan_that_nobody_has_attached_is_refused() -> None:
    store = HashStore()
    PrefixStore("0/", store).set("relaxc/runs", "1")
    rejoin = relaxc.rejoining(store, 1, 4)
    assert rejoin is not None
    with pytest.raises(ExchangeError, match=r"RX0627.*nobody in this run has attached this plan"):
        attach(rejoin)


def test_a_group_of_its_own_is_refused(tmp_path: Path) -> None:
    store = HashStore()
    PrefixStore("default_pg/0/", store).set("relaxc/runs", "1")
    with pytest.raises(ExchangeError, match=r"RX0607.*has a process group"):
        attach(relaxc.rejoining(store, 1, 4), group=object())


def test_the_roll_changes_by_comparison() -> None:
    store = HashStore()
    first = read_roll(store, 3)
    assert first == Roll((0, 0, 0))
    one, other = Roll((0, 0, 1)), Roll((0, 1, 0))
    assert change_roll(store, first, one)
    assert not change_roll(store, first, other)
    assert read_roll(store, 3) == one
    assert change_roll(store, one, Roll((0, 1, 1), 2, (0, 1, 2), (0, 0, 1), 2))
