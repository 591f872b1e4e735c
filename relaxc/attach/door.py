"""Workers that come back, as those that have lived on see them.

Whoever asks to be let in gets a thread here, which connects the two and sends the state where it is wanted from this
worker: the trainer takes a copy of it between two steps, and waits for nothing. When all have connected, the newcomer
puts itself on the roll; then the matchmaker counts on it again.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch.distributed as dist

from relaxc.attach.flight import Stage
from relaxc.attach.groups import PATIENCE, Groups
from relaxc.attach.lanes import Lane
from relaxc.attach.links import Pair, firsts, knocks, launches_of, send_state, until, waits
from relaxc.attach.matching import Matchmaker
from relaxc.errors import RelaxError


class Door:
    """`wanted` is set while a copy of this worker's state is: whoever trains calls `give` with a function that makes
    it."""

    def __init__(self, store: Any, matchmaker: Matchmaker, lanes: Sequence[Lane], groups: Groups) -> None:
        self.wanted = threading.Event()
        self.stopped = False
        self._store, self._matchmaker, self._lanes, self._groups = store, matchmaker, tuple(lanes), groups
        self._known: dict[int, int] = {}
        self._guests: list[Guest] = []
        self._state: bytes | None = None
        self._one = threading.Lock()
        matchmaker.news = self.look

    def look(self) -> None:
        """By the matchmaker, where there is news."""
        crew = self._matchmaker.crew
        roll = crew.roll()
        for rank in (r for r in range(crew.workers) if r != crew.rank):
            on_roll = rank, roll.lives[rank]
            if roll.lives[rank] > crew.lives[rank] and not any(guest.is_expected(on_roll) for guest in self._guests):
                self.refuse(*on_roll)
            life = knocks(self._store, rank)
            if life > max(self._known.get(rank, 0), crew.lives[rank]):
                self._known[rank] = life
                self._welcome(rank, life)

    def _welcome(self, rank: int, life: int) -> None:
        crew = self._matchmaker.crew
        pair = Pair(self._store, (rank, life), (crew.rank, crew.life))
        guest = Guest(pair, self, self._lanes, self._groups, self._matchmaker)
        self._guests = [*(g for g in self._guests if g.thread.is_alive()), guest]
        guest.thread.start()
        self._matchmaker.watch(guest.look)

    def refuse(self, rank: int, life: int) -> None:
        """It is on the roll, and this worker has no way to it."""
        self._known[rank] = life
        self._matchmaker.crew.admit(rank, life)
        self._matchmaker.crew.bury(rank)

    def newest(self, rank: int, life: int) -> bool:
        return self._known[rank] == life

    def give(self, make: Callable[[], bytes]) -> None:
        """Between two steps, of whoever trains."""
        self.wanted.clear()
        try:
            self._state = make()
        except Exception as error:  # noqa: BLE001 - it is the newcomer's loss, not this worker's
            warnings.warn(f"this worker's state can't be copied for one that comes back: {error}", stacklevel=4)

    def take(self, seconds: float, stopped: Callable[[], bool]) -> bytes | None:
        """A copy made from now on, by the thread of a guest. None where nobody trains."""
        with self._one:
            self._state = None
            self.wanted.set()
            made = until(lambda: self._state, seconds, stopped)
            self.wanted.clear()
            self._state = None
        return made if isinstance(made, bytes) else None

    def stop(self) -> None:
        self.stopped = True
        for guest in self._guests:
            guest.thread.join(1.0)


class Guest:
    """One life of a worker that asks to be let in."""

    def __init__(
        self, pair: Pair, door: Door, lanes: Sequence[Lane], groups: Groups, matchmaker: Matchmaker
    ) -> None:  # fmt: skip
        self._pair, self._door, self._lanes = pair, door, lanes
        self._threads_pair = replace(pair, store=pair.store.clone())
        self._groups, self._matchmaker = groups, matchmaker
        self._rank, self._life = pair.guest
        self._limit = groups.timeout.total_seconds()
        self._made: list[dist.ProcessGroup] = []
        self._heard = (-1, time.monotonic())
        """How often it was heard of, and when it last was."""
        self._over = False
        self.thread = threading.Thread(target=self._serve, name="relaxc door", daemon=True)

    # --- its thread

    def _serve(self) -> None:
        try:
            self._connect()
        except (RuntimeError, RelaxError):  # it is lost, or the store is: the others notice that by themselves
            self._over = True

    def _connect(self) -> None:
        pair = self._threads_pair
        pair.say("open")
        if until(lambda: pair.said("come"), self._limit, self._gone) is None:
            self._over = True
            return
        self._made = pair.connect(self._groups.rank, len(self._lanes), PATIENCE * self._groups.timeout)
        pair.say("linked")
        wanted, served = 0, 0
        while not self._gone():
            wanted = pair.said("want") or 0
            if wanted > served:
                served = wanted
                self._send(wanted)
            time.sleep(0.02)

    def _send(self, number: int) -> None:
        state = self._door.take(self._limit, self._gone)
        if state is not None:
            self._threads_pair.say("state", [number, len(state)])
            send_state(self._made[0], self._pair.index(self._rank), state)

    def _gone(self) -> bool:
        return self._over or self._door.stopped

    # --- the matchmaker's

    def is_expected(self, life: tuple[int, int]) -> bool:
        return not self._over and self._pair.guest == life

    def look(self) -> bool:
        """Whether it is still to be let in."""
        roll = self._matchmaker.crew.roll()
        if roll.lives[self._rank] == self._life:
            if self._made and any(self._meets(lane) for lane in self._lanes):
                return True  # what is under way with its former life ends first
            if roll.generation != self._matchmaker.generation:
                return True  # this worker is about to forget what it has launched
            self._let_in()
            self._over = True
        elif not self._door.newest(self._rank, self._life) or self._silent():
            self._over = True
        return not self._over

    def _silent(self) -> bool:
        """Whether nothing was heard of it for too long."""
        count, since = waits(self._pair.store, *self._pair.guest), time.monotonic()
        if count != self._heard[0]:
            self._heard = count, since
        return since - self._heard[1] > self._limit

    def _meets(self, lane: Lane) -> bool:
        flight = lane.flight
        return (
            flight is not None and flight.stage is Stage.UNDER_WAY and self._rank in (rank for rank, _ in flight.peers)
        )

    def _let_in(self) -> None:
        if not self._made:
            self._door.refuse(self._rank, self._life)
            return
        mine = {lane.name: lane.launches for lane in self._lanes}
        theirs = launches_of(self._pair.store, self._rank, self._life)
        for lane, group in zip(self._lanes, self._made, strict=True):
            lane.operations.link(self._rank, group, self._pair.index(self._rank))
        self._matchmaker.meets(self._rank, self._life, firsts(mine, theirs))
        self._pair.say("in", mine)
