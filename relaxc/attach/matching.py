"""Who meets whom in asynchronous exchanges: a thread that talks to the store, so that training never waits for it.

A launch is offered with a number, and begins once all that take part in it have offered theirs: nothing is sent
before, so an offer can be withdrawn. Known partners: each worker publishes how many launches it has offered at a place.
Partners that are ready: a worker has the key `pair/PLACE/RANK.LIFE`, whose value is

    idle            it offers nothing
    wait:K          its launch K waits
    busy:K          its launch K waits, and it is about to claim another's
    met:R:L:J:N     its launch was claimed by launch J of rank R in its life L, as the N-th match of the two

Of two neighbours that wait the one of higher rank claims: it makes its own key busy, so that nobody claims it
meanwhile, then the other's met. Each is one comparison in the store, which is atomic. What names a life that was given
up says nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from relaxc.attach.crew import BEAT, Crew
from relaxc.attach.roll import Roll

SHORTEST, LONGEST = 0.001, 0.03
"""Seconds between looks at the store while something waits. Each look takes the interpreter's lock from whoever trains,
and the time of the store's host: four workers that looked every 10 ms took 5 % of its core."""
GROWTH = 1.25
"""Of a pause to the one before: a look comes late by a quarter of the wait at most."""
HURRIED = 0.005
"""Seconds between looks where training waits too."""
COURTESY = LONGEST
"""Seconds for which a launch leaves it to those of higher rank, who wait already, to claim it."""
IDLE = "idle"


@dataclass(frozen=True)
class Match:
    """`peers` are the others that take part, each with the number of its own launch; `tag` is the same for all."""

    peers: tuple[tuple[int, int], ...]
    tag: int


@dataclass(frozen=True)
class Offer:
    """Launch `number` at `place`. It is for all of `crew`; where that is None, for one of `neighbours`, whoever is
    ready. `begin` is called once, by the thread, with who meets."""

    place: str
    number: int
    begin: Callable[[Match], None]
    crew: tuple[int, ...] | None = None
    neighbours: tuple[int, ...] = ()


class Matchmaker:
    """`error` is what ended the thread; `waits_since` when the call of the store began that has not returned yet."""

    def __init__(self, store: Any, rank: int, workers: int, timeout: float) -> None:
        self.crew = Crew(store, rank, workers, timeout)
        self.error: Exception | None = None
        self.waits_since: float | None = None
        self.watched: list[Callable[[], bool]] = []
        """Called at each look; false where there is nothing to watch any more."""
        self.store, self._rank = store, rank
        self._offers: dict[str, Offer] = {}
        self._offered: dict[str, float] = {}
        self._matches: Counter[tuple[str, int]] = Counter()
        self._known: set[str] = set()
        self._told: dict[str, int] = {}
        self._most: dict[str, int] = {}
        """By key, the most launches that it was seen to have: it never has fewer."""
        self._since: dict[tuple[str, int], int] = {}
        """By place and rank of one that came back (for itself: of each), the first launch in which they meet. It stays
        where launches are forgotten: earlier ones are over for one of the two."""
        self.news: Callable[[], None] = _nothing
        """Called where the crew has heard of something."""
        self.generation = 0
        """The last place where all have forgotten what was launched (attach/roll.py)."""
        self._held = False
        self._lock = threading.RLock()
        self._begun = 0.0
        """When the last look began."""
        self._stopped, self._wake = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._serve, name="relaxc matchmaker", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End the thread: the interpreter must not end amid its calls. One that the store holds up is left."""
        self._stopped.set()
        self._wake.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    # --- for whoever trains

    def offer(self, offer: Offer) -> None:
        """Never waits for the store."""
        self._offered[offer.place] = time.monotonic()
        self._offers[offer.place] = offer
        self._wake.set()

    def hurry(self) -> None:
        """Training waits for what is looked for."""
        if time.monotonic() - self._begun > HURRIED:
            self._wake.set()

    def watch(self, call: Callable[[], bool]) -> None:
        self.watched.append(call)
        self._wake.set()

    def hold(self) -> None:
        """Claim nobody from here on; what others count on begins all the same, since they may wait for it. What was
        offered is known to all that meet now."""
        with self._lock:
            self._held = True
            for offer in self._offers.values():
                self._tell(offer)

    def settle(self) -> None:
        """While all hold: what others count on has begun, and nothing else will."""
        with self._lock:
            self._look(claim=False)

    def go_on(self) -> None:
        with self._lock:
            self._held = False
        self._wake.set()

    def begin_anew(self) -> None:
        """Forget all offers and counts, all workers at the same time."""
        with self._lock:
            self._offers.clear()
            self._matches.clear()
            self._known.clear()
            self._told.clear()
            self._most.clear()
            self.generation = self.crew.met

    def all_launched(self, offer: Offer) -> bool:
        """Whether those that a launch is for have launched theirs; false where any neighbour will do."""
        others = [r for r in offer.crew or () if r != self._rank and r not in self.crew.dead]
        return offer.crew is not None and all(self._has_launched(offer, r) for r in others)

    def step(self, call: Callable[[], Any]) -> Any:
        """Something that the crew does."""
        with self._lock:
            return call()

    # --- those that come back

    def meets(self, rank: int, life: int, since: Mapping[str, int]) -> None:
        """From here on this life of a worker counts, at each place from a launch on. Of the thread."""
        self._since.update({(place, rank): number for place, number in since.items()})
        self.crew.admit(rank, life)

    def come_back(self, roll: Roll, launches: Mapping[str, int]) -> None:
        """This worker comes back to a run of others with `launches` by place."""
        self.generation = roll.generation
        for place, number in launches.items():
            self._publish(self._of("launched", place, self._rank), str(number))
            self._publish(self._of("pair", place, self._rank), IDLE)

    # --- the thread

    def _serve(self) -> None:
        try:
            pause = SHORTEST
            while not self._stopped.is_set():
                self._wake.clear()
                self._begun = self.waits_since = time.monotonic()
                with self._lock:
                    active = self._round()
                self.waits_since = None
                woken = self._wake.wait(pause if active else BEAT)
                pause = SHORTEST if woken else min(GROWTH * pause, LONGEST)
        except Exception as error:  # noqa: BLE001 - whoever trains raises it
            self.error = error

    def _round(self) -> bool:
        """Whether there is something to look for."""
        self.crew.beat()
        if self.crew.look():
            self.news()
        if self._rank in self.crew.dead:  # whoever trains hears of it
            return False
        if not self._offers and not self.watched:
            self.crew.deaf()
            return False
        self.watched = [call for call in self.watched if call()]
        self._look(claim=not self._held)
        return bool(self._offers or self.watched)

    def _look(self, claim: bool) -> None:
        for place, offer in list(self._offers.items()):
            match = self._ready(offer, claim) if offer.crew is None else self._met(offer)
            if match is not None:
                del self._offers[place]
                offer.begin(match)

    # --- known partners

    def _tell(self, offer: Offer) -> None:
        """Of launches that wait for certain workers, how many there were."""
        if offer.crew is not None and self._told.get(offer.place) != offer.number:
            self._publish(self._of("launched", offer.place, self._rank), str(offer.number + 1))
            self._told[offer.place] = offer.number

    def _met(self, offer: Offer) -> Match | None:
        assert offer.crew is not None
        self._tell(offer)
        others = [r for r in offer.crew if r != self._rank and self._counts(offer, r)]
        missing = [r for r in others if not self._has_launched(offer, r)]
        if missing:
            self.crew.listen(missing)
            return None
        return Match(tuple((r, offer.number) for r in others), offer.number)

    def _counts(self, offer: Offer, rank: int) -> bool:
        """Whether a worker takes part in this launch of its partners."""
        return rank not in self.crew.dead and offer.number >= self._since.get((offer.place, rank), 0)

    def _has_launched(self, offer: Offer, rank: int) -> bool:
        key = self._of("launched", offer.place, rank)
        if self._most.get(key, 0) <= offer.number:
            self._most[key] = int(self._read(key) or 0)
        return self._most[key] > offer.number

    # --- whoever is ready

    def _ready(self, offer: Offer, claim: bool) -> Match | None:
        mine, waits = self._of("pair", offer.place, self._rank), f"wait:{offer.number}"
        value = self._read(mine) or IDLE
        if value.startswith("met:"):
            self._publish(mine, IDLE)
            rank, life, number, tag = map(int, value.split(":")[1:])
            if life != self.crew.lives[rank]:
                return None
            self._matches[offer.place, rank] = tag + 1
            return Match(((rank, number),), tag)
        living = [r for r in offer.neighbours if r not in self.crew.dead]
        if not living:
            self._publish(mine, IDLE)
            return Match((), offer.number)
        if value != waits:
            self._publish(mine, waits)
        self.crew.listen(living)
        return self._claim(offer, mine, waits, living) if claim else None

    def _claim(self, offer: Offer, mine: str, waits: str, living: list[int]) -> Match | None:
        lower = _from(offer.number, [r for r in living if r < self._rank])
        waiting = {
            r: value for r in lower if (value := self._read(self._of("pair", offer.place, r))).startswith("wait:")
        }
        if waiting and self._defers(offer, [r for r in living if r > self._rank]):
            return None
        if not waiting or not self._change(mine, waits, f"busy:{offer.number}"):
            return None
        for rank, value in waiting.items():
            tag = self._matches[offer.place, rank]
            if self._change(
                self._of("pair", offer.place, rank), value, f"met:{self._rank}:{self.crew.life}:{offer.number}:{tag}"
            ):
                self._publish(mine, IDLE)
                self._matches[offer.place, rank] = tag + 1
                return Match(((rank, int(value.removeprefix("wait:"))),), tag)
        self._publish(mine, waits)
        return None

    def _defers(self, offer: Offer, higher: list[int]) -> bool:
        """Whether one that may claim this worker waits already: it would starve if others were always quicker."""
        fresh = time.monotonic() - self._offered[offer.place] < COURTESY
        return fresh and any(self._read(self._of("pair", offer.place, r)).startswith("wait:") for r in higher)

    # --- the store

    def _of(self, what: str, place: str, rank: int) -> str:
        """A key of a worker, in the life that counts."""
        life = self.crew.life if rank == self._rank else self.crew.lives[rank]
        return f"{what}/{place}/{rank}.{life}"

    def _key(self, key: str) -> str:
        return f"{self.generation}/{key}"

    def _publish(self, key: str, value: str) -> None:
        self.store.set(self._key(key), value)

    def _read(self, key: str) -> str:
        """Empty where it was never written: asking for what is not there would wait."""
        if key not in self._known and not self.store.check([self._key(key)]):
            return ""
        self._known.add(key)
        found: bytes = self.store.get(self._key(key))
        return found.decode()

    def _change(self, key: str, old: str, new: str) -> bool:
        """Compare, and set where it is as expected."""
        return bool(self.store.compare_set(self._key(key), old, new).decode() == new)


def _nothing() -> None:
    return None


def _from(number: int, ranks: list[int]) -> list[int]:
    """Begin with another one each time, so that nobody is preferred."""
    turn = number % len(ranks) if ranks else 0
    return ranks[turn:] + ranks[:turn]
