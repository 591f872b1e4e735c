"""What the workers of one attach tell each other when an exchange fails: records in the store of their group.

One thread of Python's per attach does all the talking. So a worker that computes answers as well as one that waits,
and a store that does not answer (its host was stopped) holds up nobody: the caller looks at what the thread has read.
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

from torch._C._distributed_c10d import Store  # torch.distributed's own, which it doesn't export to type checkers

LOOK_EVERY = 1.0
"""Seconds between looks at the store."""
GRACE = 5.0
"""Seconds in which a living worker is sure to have seen the first failure and left its record."""
OTHERS = "another worker's exchange failed"
"""What has happened to a worker that has seen no failure of its own."""
WAITS = 0.5
"""Seconds since its last look at `failed` after which a worker does not wait: waiting ones look often."""

Record = dict[str, Any]


class Board:
    """`records` are by rank, those that were read so far; `failed` tells that some worker left one; `verdict` names the
    ranks that some worker found missing; `gone` that the store is lost. The caller sets `waited` to the time whenever
    it waits for an exchange, and `within` to the call of its user that it is in, where all have to come to it."""

    def __init__(self, store: Store, rank: int, workers: int) -> None:
        self.records: dict[int, Record] = {}
        self.verdict: list[int] = []
        self.failed = self.gone = False
        self.waited = 0.0
        self.within = ""
        self._store, self._rank, self._workers = store, rank, workers
        self._mine: Record | None = None
        self._posted: Record | None = None
        self._verdict: list[int] | None = None
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="relaxc board", daemon=True)

    def start(self) -> None:
        if self._workers > 1:
            self._thread.start()

    def stop(self) -> None:
        """End the thread: the interpreter must not end amid its calls. One that the store holds up is left."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def post(self, mine: Record) -> None:
        """Publish this worker's failure."""
        self._mine = {**mine, "within": self.within}
        self._wake.set()

    def collect(self, mine: Record) -> dict[int, Record]:
        """Publish this worker's failure, and return the records of all that answer within GRACE seconds."""
        if self._workers == 1:
            return {self._rank: mine}
        self.post(mine)
        end = time.monotonic() + GRACE
        while time.monotonic() < end and self._thread.is_alive() and len(self.records) < self._workers:
            time.sleep(0.05)
        return dict(self.records)

    def judge(self, absent: list[int]) -> None:
        """Tell who was found missing, in case that one comes back."""
        self._verdict = absent
        self._wake.set()

    def _serve(self) -> None:
        try:
            while not self._stopped.is_set():
                self._wake.clear()
                self._look()
                self._wake.wait(0.1 if self.failed else LOOK_EVERY)
            self._say_the_rest()
        except RuntimeError:  # of the store, whose host is gone
            self.gone = True

    def _say_the_rest(self) -> None:
        """Before this process ends: what it has to say is what the others would otherwise have to guess."""
        if self._mine is not None and self._posted is not self._mine:
            self._post(self._mine)
        self._exchange_verdicts()

    def _look(self) -> None:
        if self._mine is None and self._store.check(["failed"]):
            idle = time.monotonic() - self.waited > WAITS
            self.post({"iteration": -1, "bucket": -1, "peer": -1, "what": OTHERS, "idle": idle})
        if self._mine is None:
            return
        if self._posted is not self._mine:
            self._post(self._mine)
        self._exchange_verdicts()
        for rank in range(self._workers):
            key = f"record/{rank}"
            if rank not in self.records and self._store.check([key]):
                self.records[rank] = json.loads(self._store.get(key))

    def _post(self, mine: Record) -> None:
        self._store.set(f"record/{self._rank}", json.dumps(mine))
        self._store.set("failed", "1")
        self._store.check(["failed"])  # an answer says that the store is there
        self.records[self._rank] = mine
        self._posted, self.failed = mine, True

    def _exchange_verdicts(self) -> None:
        if self._verdict is not None:
            self._store.set("missing", json.dumps(self._verdict))
        elif self.failed and not self.verdict and self._store.check(["missing"]):
            self.verdict = json.loads(self._store.get("missing"))
