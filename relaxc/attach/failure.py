"""When an exchange fails: who is missing. A backend names an address at best, and after a failure innocent workers see
closed connections too, so workers leave records of their own in the group's store."""

from __future__ import annotations

import json
import time
from typing import Any, NoReturn

from relaxc.attach.groups import Groups
from relaxc.errors import ExchangeError

LOOK_EVERY = 1.0
"""Seconds between looks at the store by a worker that waits."""
GRACE = 5.0
"""Seconds in which a living worker that waits is sure to have seen the first failure and left its record."""


class Watch:
    """One worker's record keeping. `on_failure` and `on_wait` are called by the runtime and raise ExchangeError (RX0603)."""

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self._store = groups.store
        self._looked = 0.0

    def on_wait(self, seconds: float, iteration: int = -1) -> None:
        """Called in slices while waiting. Another worker's failure ends this worker's wait too."""
        now = time.monotonic()
        if seconds < LOOK_EVERY or now - self._looked < LOOK_EVERY:
            return
        self._looked = now
        if self._check(["failed"]):
            self.on_failure(iteration, -1, -1, "another worker's exchange failed")

    def on_failure(self, iteration: int, bucket: int, peer: int, what: str) -> NoReturn:
        mine = {"iteration": iteration, "bucket": bucket, "peer": peer, "what": what}
        records = self._exchange_records(mine)
        if records is None:
            raise ExchangeError(
                "RX0604", f"rank {self.groups.rank}: the exchange failed and the host of the store (rank 0's) is gone: "
                f"{_place(mine)}", "restart the run",
            )  # fmt: skip
        absent = [r for r in range(self.groups.workers) if r not in records]
        cause = next((r for r in records.values() if r["bucket"] >= 0), mine)
        raise ExchangeError("RX0603", self._sentence(mine, cause, absent), "restart the run from the last checkpoint")

    def _sentence(self, mine: dict[str, Any], cause: dict[str, Any], absent: list[int]) -> str:
        shown = mine if mine["bucket"] >= 0 else cause
        if absent:
            who = f"missing: rank {', '.join(map(str, absent))}"
        elif shown["peer"] >= 0:
            who = f"the connection to rank {shown['peer']} failed"
        else:
            who = "every worker is there, but a connection failed"
        return f"rank {self.groups.rank}: the exchange failed at {_place(shown)}; {who} ({_short(shown['what'])})"

    def _exchange_records(self, mine: dict[str, Any]) -> dict[int, dict[str, Any]] | None:
        """Every living worker's record, or None where the store is gone."""
        try:
            self._store.set(f"record/{self.groups.rank}", json.dumps(mine))
            self._store.set("failed", "1")
            return self._collect()
        except RuntimeError:
            return None

    def _collect(self) -> dict[int, dict[str, Any]]:
        records: dict[int, dict[str, Any]] = {}
        end = time.monotonic() + min(GRACE, self.groups.timeout.total_seconds())
        while len(records) < self.groups.workers and time.monotonic() < end:
            for rank in range(self.groups.workers):
                if rank not in records and self._store.check([f"record/{rank}"]):
                    records[rank] = json.loads(self._store.get(f"record/{rank}"))
            time.sleep(0.1)
        return records

    def _check(self, keys: list[str]) -> bool:
        try:
            return bool(self._store.check(keys))
        except RuntimeError:
            return False  # the exchange itself will fail and say so


def _place(record: dict[str, Any]) -> str:
    where = [f"iteration {record['iteration']}"] if record["iteration"] >= 0 else []
    where += [f"bucket {record['bucket']}"] if record["bucket"] >= 0 else []
    return ", ".join(where) or "a wait"


def _short(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no details"
