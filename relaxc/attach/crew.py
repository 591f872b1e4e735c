"""Who of the workers is there: heartbeats, the dead, and places where those that live meet, whatever their steps.

It speaks through the store of their group. A worker is dead once somebody's message to it failed, or once nothing was
heard of it for as long as every wait may last; it stays so, and hears of it where it comes back. One that is started
again is another life of it, which is let in by the roll (attach/roll.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf
from typing import Any

from relaxc.attach.roll import Roll, change_roll, read_roll
from relaxc.errors import ExchangeError

BEAT = 1.0
"""Seconds between heartbeats."""
NEWS = 0.1
"""Seconds between looks for the dead."""
LOOK_EVERY = 0.005


class Crew:
    """Calls of one thread at a time, which the matchmaker sees to. `dead` are those that this worker knows of, `met` is
    how often it has come to where all meet."""

    def __init__(self, store: Any, rank: int, workers: int, timeout: float) -> None:
        self.rank, self.workers, self.timeout = rank, workers, timeout
        self.dead: set[int] = set()
        self.lives = [0] * workers
        """By rank, which life of each worker this one knows of."""
        self.life = 0
        """Of this worker."""
        self.lives_then = (0,) * workers
        """At the last place where all have met."""
        self._store = store
        self._deaths = -1
        self.met = 0
        self._beaten = self._looked = 0.0
        self.steps = 0
        """Of this worker's training; others see it with a heartbeat."""

        self._told_steps = 0
        self._heard: dict[int, tuple[int, float]] = {}
        """By rank its last count of heartbeats, and when that was first seen."""
        self.meets = False
        """Whether this worker waits where all meet."""

    @property
    def living(self) -> tuple[int, ...]:
        return tuple(r for r in range(self.workers) if r not in self.dead)

    def beat(self) -> None:
        now = time.monotonic()
        if now - self._beaten >= BEAT:
            self._beaten = now
            self._store.add(f"alive/{self.rank}", 1)
            steps = self.steps
            self._store.add(f"steps/{self.rank}", steps - self._told_steps)
            self._told_steps = steps

    def steps_of(self, rank: int) -> int:
        return int(self._store.add(f"steps/{rank}", 0))

    def look(self) -> bool:
        """Whether there is news: of the dead, and of those that come back."""
        now = time.monotonic()
        if now - self._looked < NEWS:
            return False
        self._looked = now
        if (deaths := self._store.add("deaths", 0)) == self._deaths:
            return False
        self._deaths = deaths
        self.dead |= {r for r in self.living if self.is_buried(r)}
        return True

    def look_anew(self) -> None:
        """All is news again."""
        self._deaths, self._looked = -1, 0.0

    def tell(self) -> None:
        """Have all look."""
        self._store.add("deaths", 1)

    def is_buried(self, rank: int) -> bool:
        life = self.life if rank == self.rank else self.lives[rank]
        return bool(self._store.check([f"dead/{rank}/{life}"]))

    def bury(self, rank: int) -> None:
        """Tell all that a worker is dead. One that was given up itself has nothing to say."""
        if rank != self.rank and self.is_buried(self.rank):
            return
        self.dead.add(rank)
        self._store.set(f"dead/{rank}/{self.lives[rank]}", "1")
        self.tell()

    def bury_all(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self.bury(rank)

    def listen(self, ranks: Iterable[int]) -> None:
        """Bury those of `ranks` of which nothing was heard for too long, since this worker began to listen."""
        now = time.monotonic()
        for rank in ranks:
            if rank == self.rank or rank in self.dead:
                continue
            count, since = self._heard.get(rank, (-1, now))
            if now - since < BEAT and rank in self._heard:
                continue
            heard = self._store.add(f"alive/{rank}", 0)
            if heard != count:
                self._heard[rank] = (heard, now)
            elif now - since > self.timeout:
                self.bury(rank)

    def deaf(self) -> None:
        """No launch waits for anybody. Unless this worker waits where all meet, nobody is listened to, and what was
        last heard says nothing of who lives."""
        if not self.meets:
            self._heard.clear()

    def heard_at(self, rank: int) -> float:
        """When the newest heartbeat of one that is listened to was first seen."""
        return self._heard[rank][1] if rank in self._heard else -inf

    def beats(self) -> dict[int, int]:
        """By rank, how often each worker was heard of."""
        return {rank: self._store.add(f"alive/{rank}", 0) for rank in range(self.workers)}

    def here(self) -> int:
        """Say that this worker is at the next place to meet, and which it is."""
        self.met += 1
        while self.met % 2 and not self._open(self.roll()):
            pass  # the roll has changed meanwhile
        self._store.set(f"here/{self.met}/{self.rank}/{self.life}", "1")
        return self.met

    def _open(self, roll: Roll) -> bool:
        """Whether the roll has it that a rest begins: who comes back is in it, or waits until it is over."""
        return roll.opened >= self.met or change_roll(self._store, roll, replace(roll, opened=self.met))

    def rests(self, of: Iterable[int]) -> bool:
        """Whether one of `of` is where all will meet next, so that it launches nothing."""
        return any(self._is_at(self.met + 1, r) for r in of if r not in self.dead)

    def _is_at(self, place: int, rank: int) -> bool:
        return bool(self._store.check([f"here/{place}/{rank}/{self.lives[rank]}"]))

    def absent(self, place: int) -> list[int]:
        """Those that live and have not come to `place`; none where the others have gone on from there."""
        self.look()
        if self.roll().place >= place:
            return []
        missing = [r for r in self.living if not self._is_at(place, r)]
        self.listen(missing)
        return [r for r in missing if r not in self.dead]

    def agreed(self, place: int, forgets: bool) -> tuple[int, ...] | None:
        """Who was there, the same for all: as the first that asks has it. None where it must wait on, since somebody
        has come back. `forgets`: all will forget there what was launched."""
        roll = self.roll()
        if roll.place < place:
            if roll.lives != tuple(self.lives):
                return None
            generation = place if forgets else roll.generation
            new = replace(roll, place=place, crew=self.living, lives_then=roll.lives, generation=generation)
            if not change_roll(self._store, roll, new):
                return None
            roll = new
        if self.rank not in roll.crew or roll.lives_then[self.rank] != self.life:
            raise given_up(self.rank)
        self.dead |= {r for r in self.living if r not in roll.crew and roll.lives_then[r] == self.lives[r]}
        self.lives_then = roll.lives_then
        return roll.crew

    # --- those that come back

    def roll(self) -> Roll:
        return read_roll(self._store, self.workers)

    def admit(self, rank: int, life: int) -> None:
        self.lives[rank] = life
        self.dead.discard(rank)
        self._heard.pop(rank, None)
        if self.is_buried(rank):
            self.dead.add(rank)

    def follow(self, roll: Roll) -> None:
        """As one that comes back: take from the roll who the others are."""
        self.lives, self.met = list(roll.lives), roll.place
        self.dead = {r for r in range(self.workers) if r != self.rank and self.is_buried(r)}

    def enter(self, roll: Roll) -> bool:
        """Whether this life of the worker is on the roll from now on, which was `roll`."""
        lives = tuple(self.life if r == self.rank else life for r, life in enumerate(roll.lives))
        entered = change_roll(self._store, roll, replace(roll, lives=lives))
        if entered:
            self.admit(self.rank, self.life)
            self.tell()
        return entered


def given_up(rank: int) -> ExchangeError:
    return ExchangeError(
        "RX0624", f"rank {rank}: the other workers heard nothing of this one until the timeout and go on without it",
        "start it again, or raise `timeout` where workers may be busy for longer",
    )  # fmt: skip


class Patience:
    """How long one waits for those that live: as long as they train, and `crew.timeout` seconds more. One of which
    nothing is heard behind that may be dead, which is for the crew to find."""

    def __init__(self, crew: Crew) -> None:
        self._crew, self._looked = crew, time.monotonic()
        self._seen: dict[int, tuple[int, float]] = {}
        """By rank its steps, and since when it has no more."""

    def look(self, missing: Iterable[int]) -> None:
        """Raise ExchangeError (RX0629) where one of `missing` does nothing any more."""
        now = time.monotonic()
        if now - self._looked < BEAT:
            return
        self._looked = now
        for rank in missing:
            steps, since = self._crew.steps_of(rank), now
            if rank in self._seen and self._seen[rank][0] == steps:
                since = self._seen[rank][1]
            self._seen[rank] = steps, since
            if self._crew.heard_at(rank) - since > self._crew.timeout:
                raise ExchangeError(
                    "RX0629", f"rank {self._crew.rank}: rank {rank} lives, but for {self._crew.timeout:g} s it has "
                    "neither trained nor come to where all meet",
                    "call consensus(), state_dict(), detach() and the like on all workers, as often on each",
                )  # fmt: skip


def meet(
    crew: Crew, step: Callable[[Callable[[], Any]], Any], waited: Callable[[], None], forgets: bool = False
) -> tuple[int, ...]:
    """Wait until all that live have called this as often. Returns who they are. `step` carries out calls of the crew;
    `waited` is called now and then."""
    place, patience = step(crew.here), Patience(crew)
    crew.meets = True
    try:
        while True:
            while missing := step(lambda: crew.absent(place)):
                waited()
                step(lambda: patience.look(missing))
                time.sleep(LOOK_EVERY)
            found: tuple[int, ...] | None = step(lambda: crew.agreed(place, forgets))
            if found is not None:
                return found
            waited()
            time.sleep(LOOK_EVERY)
    finally:
        crew.meets = False
