"""Workers that may be lost: real processes, forked from one that has imported torch, each with an exit status and a stderr.

`Nursery.start` returns at once, so that scenarios that mostly wait can wait side by side.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from ports import free_port

PROGRAM = Path(__file__).parent / "failures" / "programs" / "nursery.py"


def patience(seconds: float) -> float:
    """For what takes `seconds` at most on a quiet machine: only a test that fails waits longer. Below pytest's limit."""
    return min(4 * seconds, 240)


class Worker:
    """`pid` and `status` are None until they are known."""

    def __init__(self, log: Path, job: dict[str, Any]) -> None:
        self.log, self.job = log, job
        self.pid: int | None = None
        self.status: int | None = None

    @property
    def stderr(self) -> str:
        path = Path(f"{self.log}.err")
        return path.read_text() if path.exists() else ""

    def events(self, kind: str) -> list[dict[str, Any]]:
        text = self.log.read_text() if self.log.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()  # the last one may be half written
        return [e for e in map(json.loads, lines) if e["event"] == kind]

    def event(self, kind: str) -> dict[str, Any]:
        found = self.events(kind)
        assert found, f"no {kind} in {self.log}; status {self.status}; stderr:\n{self.stderr}"
        return found[0]

    def aborted(self) -> bool:
        return self.status in (-signal.SIGABRT, -signal.SIGSEGV) or "terminate called" in self.stderr


class Nursery:
    def __init__(self, folder: Path) -> None:
        self._folder, self._count = folder, itertools.count()
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-u", str(PROGRAM)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self._workers: dict[str, Worker] = {}
        self._said: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def start(
        self, behaviour: str, workers: int, *, store: str = "file", ranks: dict[int, Any] | None = None, **job: Any
    ) -> list[Worker]:
        """`job` is what all workers are told, `ranks[r]` what worker r is told besides. `store` is file or tcp."""
        number = next(self._count)
        where = self.store(store)
        jobs = [
            {"behaviour": behaviour, "workers": workers, "rank": rank, "store": where,
             "log": str(self._folder / f"{number}.{rank}"), **job, **(ranks or {}).get(rank, {})}
            for rank in range(workers)
        ]  # fmt: skip
        return self._begin(jobs)

    def start_again(self, worker: Worker, **more: Any) -> Worker:
        """One with the job of another, on the same store, and what it is told besides."""
        return self._begin([{**worker.job, "log": f"{worker.log}.{next(self._count)}", **more}])[0]

    def _begin(self, jobs: list[dict[str, Any]]) -> list[Worker]:
        started = [Worker(Path(j["log"]), j) for j in jobs]
        self._workers.update({str(w.log): w for w in started})
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        return started

    def store(self, kind: str) -> str:
        if kind == "tcp":
            return f"tcp://127.0.0.1:{free_port()}"
        return f"file://{self._folder / f'store{next(self._count)}'}"

    def wait(self, workers: list[Worker], seconds: float) -> None:
        """Until all have ended, or fail. A worker that is stopped does not end."""
        end = time.monotonic() + patience(seconds)
        while any(w.status is None for w in workers):
            assert time.monotonic() < end, "\n".join(f"{w.log} hangs:\n{w.stderr}" for w in workers if w.status is None)
            self.look(0.1)

    def look(self, seconds: float) -> None:
        """Take in what has happened."""
        try:
            said = self._said.get(timeout=seconds)
        except queue.Empty:
            return
        worker = self._workers[said["log"]]
        worker.pid, worker.status = said.get("pid", worker.pid), said.get("status", worker.status)

    def wait_for(self, worker: Worker, event: str, seconds: float) -> dict[str, Any]:
        end = time.monotonic() + patience(seconds)
        while not worker.events(event):
            assert time.monotonic() < end and worker.status is None, f"no {event}; {worker.status}\n{worker.stderr}"
            self.look(0.02)
        return worker.event(event)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._said.put(json.loads(line))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        for worker in self._workers.values():
            if worker.pid is not None and worker.status is None:
                with contextlib.suppress(ProcessLookupError):  # it ended just now
                    os.kill(worker.pid, signal.SIGKILL)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
