"""When an exchange fails: who is missing. A backend names an address at best, and after a failure innocent workers see
closed connections too, so workers leave records of their own on the board."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from relaxc.attach.board import OTHERS, Board
from relaxc.attach.groups import Groups
from relaxc.errors import ExchangeError, ModelError

BROKEN = "an exception ended backward midway"
RESTART = "restart the run from the last checkpoint"
TOGETHER = "call it after the same iteration on all workers; where their loops differ in length, train within join()"


class Watch:
    """Turns a failure into a sentence. The runtime calls `on_failure` and `on_wait`, which raise ExchangeError: RX0603,
    or RX0604 where the store is lost too."""

    def __init__(self, groups: Groups) -> None:
        self._rank, self._workers = groups.rank, groups.workers
        self._board = Board(groups.store, groups.rank, groups.workers)
        self._told: ExchangeError | None = None
        self.start, self.stop = self._board.start, self._board.stop

    @contextmanager
    def within(self, call: str) -> Iterator[None]:
        """Others are told that this worker is in that call, where they wait for it elsewhere."""
        self._board.within = call
        try:
            yield
        finally:
            self._board.within = ""

    def on_wait(self, _seconds: float, iteration: int = -1) -> None:
        """Called in slices while waiting. Another worker's failure ends this worker's wait too."""
        self._board.waited = time.monotonic()
        if self._board.failed:
            self.on_failure(iteration, -1, -1, OTHERS)

    def on_failure(self, iteration: int, bucket: int, peer: int, what: str) -> NoReturn:
        if self._told is None:
            self._told = self._judge({"iteration": iteration, "bucket": bucket, "peer": peer, "what": what})
        raise self._told

    def on_broken(self, iteration: int) -> None:
        """An exception of the user's ended this worker's backward midway: the others' exchange can't complete."""
        self._board.post({"iteration": iteration, "bucket": -1, "peer": -1, "what": BROKEN})

    def refuse(self, code: str, message: str, help: str) -> NoReturn:
        """A mistake of the user's that only shows while training."""
        raise (ModelError if code.startswith("RX04") else ExchangeError)(code, message, help)

    def _judge(self, mine: dict[str, Any]) -> ExchangeError:
        records = self._board.collect(mine)
        if not records:
            how = "is gone" if self._board.gone else "does not answer"
            return ExchangeError(
                "RX0604", f"rank {self._rank}: the exchange failed at {_place(mine)}{_link(mine)}, and the host of the "
                f"store (rank 0, or torchrun's agent) {how} ({short(mine['what'])})", RESTART,
            )  # fmt: skip
        absent = [r for r in range(self._workers) if r not in records]
        if absent:
            self._board.judge(absent)
        cause = next((r for r in records.values() if r["bucket"] >= 0 or r["what"] == BROKEN), mine)
        inside = {r: record["within"] for r, record in records.items() if record.get("within")}
        if inside and len(inside) < len(records) and not absent:
            return ExchangeError("RX0603", self._met_elsewhere(mine, inside, records), TOGETHER)
        idle = [r for r, record in records.items() if record.get("idle") and r != self._rank]
        broken = [r for r, record in records.items() if record["what"] == BROKEN]
        shown = mine if mine["bucket"] >= 0 else cause
        apart = "" if absent or idle or broken else _apart(records)
        return ExchangeError("RX0603", self._sentence(shown, broken, absent, idle, apart), RESTART)

    def _met_elsewhere(self, mine: dict[str, Any], inside: dict[int, str], records: dict[int, dict[str, Any]]) -> str:
        call = next(iter(inside.values()))
        train = _list([r for r in records if r not in inside])
        return (
            f"rank {self._rank}: the exchange failed at {_place(mine)}; rank {_list([*inside])} is in {call} while "
            f"rank {train} trains on ({short(mine['what'])})"
        )

    def _sentence(
        self, shown: dict[str, Any], broken: list[int], absent: list[int], idle: list[int], apart: str
    ) -> str:
        if broken:
            return f"rank {self._rank}: the exchange failed at {_place(shown)}: {BROKEN} on rank {_list(broken)}"
        if absent:
            who = f"; missing: rank {_list(absent)}"
        elif idle:
            who = f"; rank {_list(idle)} lives, but takes no part"
        elif apart:
            who = f"; {apart}"
        elif self._rank in self._board.verdict:
            who = "; the other workers waited for this one until the timeout and gave up"
        else:
            who = f"{_link(shown)}, though every worker is there"
        return f"rank {self._rank}: the exchange failed at {_place(shown)}{who} ({short(shown['what'])})"


def _list(ranks: list[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))


def _apart(records: dict[int, dict[str, Any]]) -> str:
    """Where the workers' loops have come apart: a step or a batch that some of them left out."""
    at = {rank: record["iteration"] for rank, record in records.items() if record["iteration"] >= 0}
    if len(set(at.values())) < 2:
        return ""
    places = ", ".join(f"rank {rank} in {iteration}" for rank, iteration in sorted(at.items()))
    return f"the workers are in different iterations: {places}; give all the same loop"


def _link(record: dict[str, Any]) -> str:
    return f" on the connection to rank {record['peer']}" if record["peer"] >= 0 else ""


def _place(record: dict[str, Any]) -> str:
    where = [f"iteration {record['iteration']}"] if record["iteration"] >= 0 else []
    where += [f"bucket {record['bucket']}"] if record["bucket"] >= 0 else []
    return ", ".join(where) or "a wait"


def short(text: str) -> str:
    return text.strip().splitlines()[0][:200] if text.strip() else "no details"
