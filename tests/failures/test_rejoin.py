"""A worker is killed and started again while the others train on under an asynchronous spec: it rejoins, or hears why
not."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from nursery import Nursery, Worker

TIMEOUT = 6


class Run:
    """Workers that train until they are told to end."""

    def __init__(self, nursery: Nursery, folder: Path, spec: str, workers: int = 4, **job: object) -> None:
        self._nursery, self._until = nursery, folder / f"end{time.monotonic()}"
        self.workers = nursery.start(
            "return_", workers, store="tcp", spec=spec, timeout=TIMEOUT, until=str(self._until), brisk=True, **job
        )
        for worker in self.workers:
            nursery.wait_for(worker, "step", 60)

    def kill(self, rank: int) -> None:
        worker = self.workers[rank]
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGKILL)

    def again(self, rank: int, **more: object) -> Worker:
        return self._nursery.start_again(self.workers[rank], again=True, **more)

    def wait(self, worker: Worker, event: str = "attached") -> None:
        self._nursery.wait_for(worker, event, 60)

    def until(self, true: Callable[[], bool], seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < end
            self._nursery.look(0.05)

    def end(self, workers: list[Worker]) -> None:
        self._until.touch()
        self._nursery.wait(workers, 60)


def landed(worker: Worker) -> int:
    return int((worker.events("step") or [{"landed": 0}])[-1]["landed"])


def lost(worker: Worker) -> int:
    return int(worker.events("step")[-1]["lost_workers"])


def all_went_on(workers: list[Worker], crew: int) -> None:
    """They have ended well, with one average of all, and nobody has waited for anybody."""
    assert [w.status for w in workers] == [0] * len(workers), [w.stderr for w in workers]
    assert {w.event("consensus")["workers"] for w in workers} == {crew}
    assert len({w.event("consensus")["weight"] for w in workers}) == 1
    assert len({w.event("loaded")["weight"] for w in workers}) == 1
    assert sum(w.event("loaded")["landed"] for w in workers) >= 2  # a state that is loaded parts nobody
    for worker in workers:
        assert not worker.aborted()
        steps = worker.events("step")
        assert max(b["time"] - a["time"] for a, b in itertools.pairwise(steps)) < TIMEOUT / 2
        assert steps[-1]["exposed_seconds"] == 0


@pytest.mark.parametrize("spec", ["ready", "pairs", "ring weights", "8 bits", "adpsgd"])
def test_it_rejoins(nursery: Nursery, tmp_path: Path, spec: str) -> None:
    run = Run(nursery, tmp_path, spec)
    run.until(lambda: landed(run.workers[3]) > 5)
    run.kill(3)
    again = run.again(3)
    run.wait(again)
    others = run.workers[:3]
    before = [len(w.events("step")) for w in others]
    run.until(lambda: landed(again) > 8)
    run.until(lambda: all(lost(w) == 0 for w in others))
    run.end([*others, again])
    all_went_on([*others, again], 4)
    attached = again.event("attached")
    assert attached["seen"] > 0 and attached["momentum"] > 0  # buffers and the optimiser's state came along
    assert all(max(s["lost_workers"] for s in w.events("step")) == 1 for w in others)  # they knew, and know better
    for worker, count in zip(others, before, strict=True):
        during = [s for s in worker.events("step") if s["time"] < attached["time"]]
        assert count <= len(during) + 5 and len(worker.events("step")) > count
    assert again.events("step")[-1]["dropped"] == 0


def test_two_rejoin_at_once(nursery: Nursery, tmp_path: Path) -> None:
    run = Run(nursery, tmp_path, "ready")
    run.until(lambda: landed(run.workers[3]) > 5)
    run.kill(2)
    run.kill(3)
    again = [run.again(2), run.again(3)]
    for worker in again:
        run.wait(worker)
    workers = [*run.workers[:2], *again]
    run.until(lambda: all(landed(w) > 5 for w in again) and not any(lost(w) for w in workers))
    run.end(workers)
    all_went_on(workers, 4)


def test_it_is_lost_again_on_its_way_and_comes_once_more(nursery: Nursery, tmp_path: Path) -> None:
    run = Run(nursery, tmp_path, "pairs")
    run.kill(3)
    for amid in ("_take", "_write", "_be_seen"):  # the last when it is on the roll
        failed = run.again(3, amid=amid, die=True)
        run.until(lambda failed=failed: failed.status is not None)  # type: ignore[misc]
        assert failed.events("amid")
    again = run.again(3)
    run.wait(again)
    run.until(lambda: landed(again) > 5)
    run.end([*run.workers[:3], again])
    all_went_on([*run.workers[:3], again], 4)


@pytest.mark.parametrize("amid", ["_take", "_write", "_be_seen"])
def test_another_is_lost_meanwhile(nursery: Nursery, tmp_path: Path, amid: str) -> None:
    run = Run(nursery, tmp_path, "pairs")
    run.kill(3)
    again = run.again(3, amid=amid, pause=1.0)
    run.wait(again, "amid")
    run.kill(2)
    run.wait(again)
    workers = [*run.workers[:2], again]
    run.until(lambda: landed(again) > 5 and all(lost(w) == 1 for w in workers))
    run.end(workers)
    all_went_on(workers, 3)


def test_rests_meanwhile(nursery: Nursery, tmp_path: Path) -> None:
    """Averages of all at the same times of the clock: before it comes, while it does, and after."""
    now = time.monotonic()
    run = Run(nursery, tmp_path, "ready", 3, rests=[now + 4 + n for n in range(12)])
    run.kill(2)
    again = run.again(2)
    run.wait(again)
    workers = [*run.workers[:2], again]
    run.until(lambda: all(w.events("rest") and w.events("rest")[-1]["at"] > now + 14.5 for w in workers))
    run.end(workers)
    all_went_on(workers, 3)
    for at in {e["at"] for w in workers for e in w.events("rest")}:
        there = [e for w in workers for e in w.events("rest") if e["at"] == at]
        assert len({e["weight"] for e in there}) == 1
        assert {e["workers"] for e in there} == {len(there)}


def test_one_that_was_stopped_finds_itself_replaced(nursery: Nursery, tmp_path: Path) -> None:
    run = Run(nursery, tmp_path, "ready", 3)
    stopped = run.workers[2]
    assert stopped.pid is not None
    os.kill(stopped.pid, signal.SIGSTOP)
    again = run.again(2)
    run.wait(again)
    os.kill(stopped.pid, signal.SIGCONT)
    run.until(lambda: stopped.status is not None)
    assert stopped.event("error")["code"] == "RX0624"
    run.until(lambda: landed(again) > 5)
    run.end([*run.workers[:2], again])
    all_went_on([*run.workers[:2], again], 3)


def test_refusals(nursery: Nursery, tmp_path: Path) -> None:
    """One that was never lost, and one with another model: the others don't notice."""
    run = Run(nursery, tmp_path, "ready", 3)
    living, wide = run.again(2), run.again(2, width=301)
    run.until(lambda: living.status is not None and wide.status is not None)
    assert living.event("error")["code"] == "RX0627" and "it was not lost" in living.event("error")["text"]
    assert wide.event("error")["code"] == "RX0601" and "the run has 0.weight" in wide.event("error")["text"]
    run.end(run.workers)
    all_went_on(run.workers, 3)
    assert not any(lost(w) for w in run.workers)


@pytest.mark.parametrize(
    ("spec", "why"),
    [("none", "all workers take part at the same time"), ("average", "a mean or sum of all")],
)
def test_plans_that_nobody_comes_back_to(nursery: Nursery, tmp_path: Path, spec: str, why: str) -> None:
    run = Run(nursery, tmp_path, spec, 2)
    again = run.again(1)
    run.until(lambda: again.status is not None)
    assert again.event("error")["code"] == "RX0627" and why in again.event("error")["text"]
    run.kill(1)
    run.kill(0)
