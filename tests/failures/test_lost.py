"""A worker is lost in the middle of training: every other one ends with an error that names it, in time."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from nursery import Nursery, Worker

TIMEOUT, GRACE, SLACK = 3, 5, 6
"""Of attach, of attach/board.py, and what a busy machine adds."""
LOST = {
    f"{act}-{spec}-{workers}": (act, spec, workers)
    for act, spec, workers in [
        *((act, spec, 4) for act in ("die", "stop") for spec in ("none", "all", "ring", "late")),
        *((act, spec, 2) for act in ("die", "stop") for spec in ("none", "all")),
    ]
}
Scenarios = dict[str, list[Worker]]


@pytest.fixture(scope="module")
def scenarios(nursery: Nursery) -> Scenarios:
    """All of them are started together: they do little but wait."""
    lost = {
        name: nursery.start(
            "train",
            workers,
            spec=spec,
            timeout=TIMEOUT,
            steps=400,
            brisk=workers > 2,
            ranks={workers - 1: {"at": 3, "act": act, "inside": True}},
        )
        for name, (act, spec, workers) in LOST.items()
    }
    for name, job in OTHERS.items():
        lost[name] = nursery.start("train", **{"timeout": TIMEOUT, "steps": 400, "spec": "all", "brisk": True, **job})
    return lost


OTHERS: dict[str, dict[str, Any]] = {
    "host dies": {"workers": 3, "store": "tcp", "ranks": {0: {"at": 3, "act": "die"}}},
    "host stops": {"workers": 3, "store": "tcp", "ranks": {0: {"at": 3, "act": "stop"}}},
    "busy": {
        "workers": 4, "store": "tcp",
        "ranks": {1: {"at": 3, "act": "die"}, 2: {"at": 3, "act": "compute", "seconds": 9},
                  3: {"at": 3, "act": "spin", "seconds": 4}},
    },
    "own fault": {"workers": 3, "ranks": {1: {"at": 3, "act": "fault"}}},
    "own fault inside": {"workers": 3, "spec": "none", "ranks": {1: {"at": 3, "act": "fault", "inside": True}}},
    "fewer": {"workers": 3, "ranks": {2: {"steps": 3, "detach": True}}},
    "fewer, consensus": {"workers": 3, "spec": "mix", "ranks": {2: {"steps": 3, "consensus": True}}},
    "fewer, alive": {"workers": 3, "spec": "none", "ranks": {2: {"steps": 3, "linger": 15}}},
}  # fmt: skip


def survivors(nursery: Nursery, workers: list[Worker], lost: int, extra: float = 0) -> list[dict[str, Any]]:
    """The errors of all but `lost`, each having ended in time, without a crash."""
    rest = [w for rank, w in enumerate(workers) if rank != lost]
    nursery.wait(rest, 90)
    errors = []
    for worker in rest:
        error = worker.event("error")
        assert worker.status == 1
        assert not worker.aborted()
        assert error["kind"] == "ExchangeError"
        since = [e["time"] for e in workers[lost].events("act")] or [workers[lost].events("step")[-1]["time"]]
        assert error["time"] - since[0] < TIMEOUT + GRACE + SLACK + extra
        errors.append(error)
    return errors


@pytest.mark.parametrize("name", LOST)
def test_survivors_name_the_worker_that_died_or_stopped(nursery: Nursery, scenarios: Scenarios, name: str) -> None:
    workers, lost = scenarios[name], len(scenarios[name]) - 1
    for rank, error in enumerate(survivors(nursery, workers, lost)):
        assert error["code"] == "RX0603"
        assert f"rank {rank}: the exchange failed at iteration " in error["text"]
        assert "bucket " in error["text"]
        assert f"; missing: rank {lost} (" in error["text"]
    if LOST[name][0] == "die":
        nursery.wait(workers, 5)
        assert workers[lost].status == -signal.SIGKILL
        return
    # The one that was stopped comes back: it hears that it was given up.
    assert workers[lost].status is None and workers[lost].pid is not None
    os.kill(workers[lost].pid, signal.SIGCONT)
    nursery.wait(workers, TIMEOUT + GRACE + SLACK)
    error = workers[lost].event("error")
    assert not workers[lost].aborted()
    assert (error["code"], workers[lost].status) == ("RX0603", 1)
    assert f"rank {lost}: the exchange failed at iteration " in error["text"]
    assert "the other workers waited for this one until the timeout and gave up" in error["text"]


@pytest.mark.parametrize(("name", "how"), [("host dies", "is gone"), ("host stops", "does not answer")])
def test_the_host_of_the_store_is_lost(nursery: Nursery, scenarios: Scenarios, name: str, how: str) -> None:
    for number, error in enumerate(survivors(nursery, scenarios[name], 0)):
        assert error["code"] == "RX0604"
        assert f"rank {number + 1}: the exchange failed at iteration 3, bucket " in error["text"]
        assert f"the host of the store (rank 0, or torchrun's agent) {how}" in error["text"]
    stopped = scenarios[name][0]
    if stopped.status is None and stopped.pid is not None:
        os.kill(stopped.pid, signal.SIGKILL)


def test_a_worker_that_computes_is_not_missing_and_ends_too(nursery: Nursery, scenarios: Scenarios) -> None:
    errors = survivors(nursery, scenarios["busy"], 1, extra=9)
    for rank, error in zip((0, 2, 3), errors, strict=True):
        assert error["code"] == "RX0603"
        assert error["text"].startswith(f"RX0603: rank {rank}: ")
        assert "; missing: rank 1 (" in error["text"]


LEFT = {"own fault": "; missing: rank 1 (", "own fault inside": "an exception ended backward midway on rank 1"}


@pytest.mark.parametrize("name", LEFT)
def test_a_worker_that_ends_by_its_own_exception(nursery: Nursery, scenarios: Scenarios, name: str) -> None:
    for error in survivors(nursery, scenarios[name], 1):
        assert LEFT[name] in error["text"]
    faulty = scenarios[name][1]
    nursery.wait([faulty], 10)
    assert faulty.status == 1 and not faulty.aborted()
    assert "ValueError: a mistake in the user's code" in faulty.stderr


@pytest.mark.parametrize("name", ["fewer", "fewer, alive"])
def test_a_worker_that_trains_fewer_steps(nursery: Nursery, scenarios: Scenarios, name: str) -> None:
    for error in survivors(nursery, scenarios[name], 2, extra=5):
        assert "iteration 3" in error["text"]
        assert "rank 2" in error["text"].split(";")[1]
    nursery.wait(scenarios[name], 30)
    assert scenarios[name][2].status == 0


def test_a_worker_that_is_in_consensus_early(nursery: Nursery, scenarios: Scenarios) -> None:
    for error in survivors(nursery, scenarios["fewer, consensus"], 2, extra=5):
        assert "rank 2 is in consensus() while rank 0, 1 trains on" in error["text"]
        assert "train within join()" in error["text"]
