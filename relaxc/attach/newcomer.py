"""A worker that was started again, on its way back into the run.

It asks to be let in, connects with each that lives, takes the state of one of them, and puts itself on the roll; the
roll changes by comparison, so it begins anew with whatever changed meanwhile. It begins to train once all have seen it.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch.distributed as dist

from relaxc.attach.crew import BEAT
from relaxc.attach.groups import PATIENCE, Groups
from relaxc.attach.lanes import Lane
from relaxc.attach.links import LOOK_EVERY, Pair, firsts, knock, receive_state, tell_launches, wait_on
from relaxc.attach.matching import Matchmaker
from relaxc.attach.roll import Roll
from relaxc.errors import ExchangeError

SILENT = 2.5 * BEAT
"""Seconds without a heartbeat after which one that is started again counts as dead."""


@dataclass
class Newcomer:
    """`take` is called with the state of another. Whoever makes it calls `come` before anything else begins."""

    store: Any
    matchmaker: Matchmaker
    lanes: tuple[Lane, ...]
    groups: Groups
    take: Callable[[bytes], None]
    _made: dict[int, tuple[Pair, list[dist.ProcessGroup]]] = field(default_factory=dict)
    _beaten: float = 0.0
    _asked: int = 0

    def come(self) -> None:
        """Raise ExchangeError: RX0627 where this worker was never lost, RX0628 where it isn't let in in time."""
        crew, rank = self.matchmaker.crew, self.groups.rank
        try:
            self._refuse_living()
            crew.life = self.store.add(f"lives/{rank}", 1)
            knock(self.store, rank, crew.life)
            crew.tell()
            while not self._enter():
                time.sleep(LOOK_EVERY)
            self._stay()
            crew.look_anew()  # others may have asked this worker to let them in
        except RuntimeError as error:
            if isinstance(error, ExchangeError):
                raise
            raise self._lost(f"the connection to another worker or to the store was lost ({error})") from error

    def _refuse_living(self) -> None:
        """Its former life has ended: the others know so, or nothing is heard of it."""
        crew, rank = self.matchmaker.crew, self.groups.rank
        crew.follow(crew.roll())
        crew.life = crew.lives[rank]
        if crew.is_buried(rank):
            return
        before, end = crew.beats()[rank], time.monotonic() + SILENT
        while time.monotonic() < end:
            if crew.beats()[rank] != before:
                raise ExchangeError(
                    "RX0627", f"rank {rank} can't rejoin: it was not lost, another process of this rank is at work",
                    "start each rank once; end the process before it is started again",
                )  # fmt: skip
            time.sleep(0.1)
        crew.bury(rank)

    # --- each try

    def _enter(self) -> bool:
        """Whether it is on the roll: nothing has changed since it has looked."""
        crew, rank = self.matchmaker.crew, self.groups.rank
        roll = crew.roll()
        crew.follow(roll)
        if roll.lives[rank] >= crew.life or self._newer():
            raise ExchangeError("RX0627", f"rank {rank} can't rejoin: it was started once more meanwhile")
        others = [r for r in crew.living if r != rank]
        if not others:
            raise self._lost("nobody is left")
        for other in others:
            if not self._is_linked(other) and not self._link(other):
                return False
        if roll.rests:
            self._until(lambda: None if crew.roll().rests else True, others, "the end of their wait for each other")
            return False
        return self._take(others) and self._write(roll)

    def _newer(self) -> bool:
        crew = self.matchmaker.crew
        return int(self.store.add(f"lives/{crew.rank}", 0)) != crew.life

    def _is_linked(self, other: int) -> bool:
        return other in self._made and self._made[other][0].host[1] == self.matchmaker.crew.lives[other]

    def _link(self, other: int) -> bool:
        """False where that one is lost."""
        crew = self.matchmaker.crew
        pair = Pair(self.store, (crew.rank, crew.life), (other, crew.lives[other]))
        if self._until(lambda: pair.said("open"), [other], "an answer") is None:
            return False
        pair.say("come")
        made = pair.connect(crew.rank, len(self.lanes), PATIENCE * self.groups.timeout)
        if self._until(lambda: pair.said("linked"), [other], "a connection") is None:
            return False
        self._made[other] = pair, made
        return True

    def _take(self, others: list[int]) -> bool:
        """The state of the first that lives. False where that one was lost meanwhile."""
        pair, made = self._made[others[0]]
        self._asked += 1
        asked = self._asked
        pair.say("want", asked)

        def size() -> int | None:
            said = pair.said("state")
            return said[1] if said is not None and said[0] == asked else None

        found = self._until(size, others[:1], "its state, of which a copy is made when it next steps")
        if found is None:
            return False
        index = pair.index(others[0])
        self.take(receive_state(made[0], index, found, self.groups.timeout))
        return True

    def _write(self, roll: Roll) -> bool:
        crew = self.matchmaker.crew
        launches = {lane.name: lane.launches for lane in self.lanes}
        self.matchmaker.come_back(roll, launches)
        tell_launches(self.store, crew.rank, crew.life, launches)
        return crew.enter(roll)

    # --- on the roll

    def _stay(self) -> None:
        try:
            self._be_seen()
        except BaseException:
            with contextlib.suppress(RuntimeError):  # of the store
                self.matchmaker.crew.bury(self.groups.rank)
            raise

    def _be_seen(self) -> None:
        """Until each that lives counts on this worker; then both know from which launch on."""
        crew = self.matchmaker.crew
        mine = {lane.name: lane.launches for lane in self.lanes}
        for other, (pair, made) in self._made.items():
            if other in crew.dead or not self._is_linked(other):
                continue
            theirs = self._until(lambda pair=pair: pair.said("in"), [other], "an answer")  # type: ignore[misc]
            if theirs is None:
                continue
            for lane, group in zip(self.lanes, made, strict=True):
                lane.operations.link(other, group, pair.index(other))
            self.matchmaker.meets(other, pair.host[1], firsts(mine, theirs))

    # --- waiting

    def _until(self, found: Callable[[], Any], of: list[int], what: str) -> Any:
        """What `found` returns once it is not None; None where one of `of` is lost. Raise ExchangeError (RX0628) at the
        timeout."""
        crew = self.matchmaker.crew
        end = time.monotonic() + crew.timeout + 2 * BEAT  # until then the silent are found out
        crew.deaf()
        while (value := found()) is None:
            self._beat()
            crew.look()
            crew.listen(of)
            if any(r in crew.dead for r in of):
                return None
            if time.monotonic() > end:
                raise self._lost(f"rank {', '.join(map(str, of))} lives, and was waited for until the timeout: {what}")
            time.sleep(LOOK_EVERY)
        return value

    def _beat(self) -> None:
        """Of a life that is not on the roll yet nobody counts the heartbeats of its rank."""
        crew, now = self.matchmaker.crew, time.monotonic()
        crew.beat()
        if now - self._beaten > BEAT / 2:
            self._beaten = now
            wait_on(self.store, crew.rank, crew.life)

    def _lost(self, why: str) -> ExchangeError:
        return ExchangeError(
            "RX0628", f"rank {self.groups.rank} was not let in again: {why}", "start it again, or raise `timeout`"
        )
