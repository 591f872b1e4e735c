"""How processes end: by Ctrl-C, with a live engine, forked; and that a plan lives as long as its model."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from nursery import Nursery, Worker

WAYS = ["leave it", "drop", "detach, destroy", "destroy, detach", "destroy"]


def clean(worker: Worker) -> None:
    assert (worker.status, worker.stderr) == (0, "")


@pytest.fixture(scope="module")
def scenarios(nursery: Nursery) -> dict[str, list[Worker]]:
    def start(behaviour: str, workers: int, **job: Any) -> list[Worker]:
        return nursery.start(behaviour, workers, **{"spec": "all", **job})

    started = {
        f"interrupted {spec}": start("train", 2, spec=spec, timeout=100, steps=400, ranks={1: {"at": 3, "act": "stop"}})
        for spec in ("none", "all")
    }
    started["interrupted at attach"] = start("train", 2, timeout=100, steps=3, ranks={1: {"absent": 6, "brisk": True}})
    started["terminated"] = start("train", 2, timeout=100, steps=400, brisk=True, ranks={1: {"at": 3, "act": "stop"}})
    started["dropped"] = start("drop_result", 2, brisk=True)
    started["fork"] = start("fork", 2)
    started["again"] = start("again", 2, stores=[nursery.store("tcp"), nursery.store("file")], times=6, brisk=True)
    started["overlapping"] = start("overlapping", 3, brisk=True)
    started["other timeout"] = start("other_timeout", 2, brisk=True)
    return started


@pytest.mark.parametrize("name", ["interrupted none", "interrupted all", "interrupted at attach"])
def test_control_c_ends_a_wait_at_once(nursery: Nursery, scenarios: Any, name: str) -> None:
    worker, other = scenarios[name]
    if name == "interrupted at attach":
        nursery.wait_for(worker, "attaching", 20)
    else:
        nursery.wait_for(other, "act", 20)
    time.sleep(1)  # by now it waits for the stopped one
    assert worker.pid is not None
    sent = time.monotonic()
    os.kill(worker.pid, signal.SIGINT)
    nursery.wait([worker], 15)
    assert worker.event("error")["kind"] == "KeyboardInterrupt"
    assert worker.event("error")["time"] - sent < 2
    assert worker.status in (-signal.SIGINT, 130, 1)
    assert not worker.aborted()


def test_sigterm_ends_a_wait(nursery: Nursery, scenarios: Any) -> None:
    worker, other = scenarios["terminated"]
    nursery.wait_for(other, "act", 20)
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGTERM)
    nursery.wait([worker], 10)
    assert (worker.status, worker.stderr) == (-signal.SIGTERM, "")


def test_gradients_are_exchanged_though_nobody_keeps_the_result(nursery: Nursery, scenarios: Any) -> None:
    nursery.wait(scenarios["dropped"], 30)
    left, right = (w.event("weights")["sum"] for w in scenarios["dropped"])
    assert left == right, "workers have different data: equal weights come from an exchange"


def test_children_of_a_training_process_end(nursery: Nursery, scenarios: Any) -> None:
    nursery.wait(scenarios["fork"], 60)
    for worker in scenarios["fork"]:
        assert worker.event("loaded")["values"] == [float(n) for n in range(8)]
        assert [e["status"] for e in worker.events("child")] == [7, 7]
        clean(worker)


def test_attach_and_detach_many_times(nursery: Nursery, scenarios: Any) -> None:
    nursery.wait(scenarios["again"], 60)
    for worker in scenarios["again"]:
        clean(worker)
        assert worker.event("threads")["ours"] == [], "detach ends its threads"


def test_groups_that_overlap(nursery: Nursery, scenarios: Any) -> None:
    nursery.wait(scenarios["overlapping"], 30)
    for worker in scenarios["overlapping"]:
        clean(worker)
    sums = [w.event("sums")["sums"] for w in scenarios["overlapping"]]
    for ranks in ([0, 1], [1, 2], [0, 1, 2]):
        assert len({sums[rank][str(ranks)] for rank in ranks}) == 1


def test_the_timeout_of_the_users_group_is_not_the_plans(nursery: Nursery, scenarios: Any) -> None:
    nursery.wait(scenarios["other timeout"], 30)
    for worker in scenarios["other timeout"]:
        clean(worker)


def test_every_way_to_end(nursery: Nursery) -> None:
    """Exit status 0 and an empty stderr, over and over: a thread that outlives what it uses would show now and then."""
    specs = ("none", "all", "late")
    workers = [
        w
        for round_ in range(2)
        for way in WAYS
        for w in nursery.start("leave", 1 + round_, spec=specs[WAYS.index(way) % 3], way=way)
    ]
    workers += [w for spec in specs for _ in range(3) for w in nursery.start("leave", 1, spec=spec, way="leave it")]
    nursery.wait(workers, 120)
    for worker in workers:
        clean(worker)
