"""A worker is lost amid an asynchronous exchange: the others drop it and train on, or say why they can't."""

from __future__ import annotations

import itertools
import os
import signal
from typing import Any

import pytest
from nursery import Nursery, Worker

TIMEOUT, SECONDS, AT = 3, 9, 1.5
Scenarios = dict[str, list[Worker]]
SCENARIOS: dict[str, dict[str, Any]] = {
    "ready, die": {"spec": "ready", "ranks": {3: {"act": "die"}}},
    "pairs, die": {"spec": "pairs", "ranks": {3: {"act": "die"}}},
    "ring, die": {"spec": "ring weights", "ranks": {3: {"act": "die"}}},
    "ready, stop": {"spec": "ready", "ranks": {3: {"act": "stop"}}},
    "pairs, stop": {"spec": "pairs", "ranks": {3: {"act": "stop"}}},
    "average, die": {"spec": "average", "ranks": {3: {"act": "die"}}},
    "host dies": {"spec": "ready", "ranks": {0: {"act": "die"}}},
}


@pytest.fixture(scope="module")
def scenarios(nursery: Nursery) -> Scenarios:
    """Some of them at a time."""
    given = {"timeout": TIMEOUT, "seconds": SECONDS, "at": AT, "brisk": True, "store": "tcp"}
    made: Scenarios = {}
    names = list(SCENARIOS)
    for first in range(0, len(names), 3):
        begun = {name: nursery.start("wander", 4, **given, **SCENARIOS[name]) for name in names[first : first + 3]}
        made |= begun
        for name, workers in begun.items():
            nursery.wait(rest(workers, _lost(name)), 60)
    return made


def _lost(name: str) -> int:
    return int(next(iter(SCENARIOS[name]["ranks"])))


def rest(workers: list[Worker], lost: int) -> list[Worker]:
    return [worker for rank, worker in enumerate(workers) if rank != lost]


@pytest.mark.parametrize("name", ["ready, die", "pairs, die", "ring, die", "ready, stop", "pairs, stop"])
def test_the_others_drop_the_exchange_and_train_on(nursery: Nursery, scenarios: Scenarios, name: str) -> None:
    workers = scenarios[name]
    nursery.wait(rest(workers, 3), 90)
    lost = workers[3].event("act")["time"]
    left = rest(workers, 3)
    assert [worker.status for worker in left] == [0, 0, 0], [worker.stderr for worker in left]
    dropped = 0
    for worker in left:
        stats = worker.event("stats")
        assert stats["lost_workers"] == 1
        dropped += stats["dropped"]
        steps = worker.events("step")
        noticed = next(step for step in steps if step["lost_workers"])
        assert noticed["time"] - lost < (2.5 if "die" in name else TIMEOUT + 3)
        assert steps[-1]["landed"] > noticed["landed"] + 5  # those that are left go on exchanging
        assert max(b["time"] - a["time"] for a, b in itertools.pairwise(steps)) < TIMEOUT / 2  # nobody has waited
    assert 1 <= dropped <= 3
    assert {worker.event("consensus")["workers"] for worker in left} == {3}
    assert len({worker.event("consensus")["weight"] for worker in left}) == 1
    assert not any(worker.aborted() for worker in left)


@pytest.mark.parametrize("name", ["ready, stop", "pairs, stop"])
def test_one_that_comes_back_hears_that_it_was_given_up(nursery: Nursery, scenarios: Scenarios, name: str) -> None:
    workers = scenarios[name]
    nursery.wait(rest(workers, 3), 90)
    assert workers[3].status is None and workers[3].pid is not None
    # rank 0, which had the store, has ended: so it hears of that at the latest
    os.kill(workers[3].pid, signal.SIGCONT)
    nursery.wait(workers, 20)
    assert workers[3].status == 1
    assert workers[3].event("error")["code"] in ("RX0624", "RX0604")
    assert not workers[3].aborted()


def test_an_average_of_all_cannot_go_on(nursery: Nursery, scenarios: Scenarios) -> None:
    workers = scenarios["average, die"]
    nursery.wait(workers, 60)
    for worker in rest(workers, 3):  # rank 0 has the store, which the others may lose before they know
        assert worker.event("error")["code"] in ("RX0622", "RX0604")
        assert not worker.aborted()
    assert workers[0].event("error")["code"] == "RX0622"
    assert "can't go on without those that were lost: 3" in workers[0].event("error")["text"]


def test_without_the_host_of_the_store_the_run_ends(nursery: Nursery, scenarios: Scenarios) -> None:
    workers = scenarios["host dies"]
    nursery.wait(workers, 60)
    for rank, worker in enumerate(workers[1:], 1):
        error = worker.event("error")
        assert error["code"] == "RX0604"
        assert f"rank {rank}: " in error["text"]
        assert "the host of the store (rank 0, or torchrun's agent)" in error["text"]
        assert not worker.aborted()
