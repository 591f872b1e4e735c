"""Who belongs to the run, as one value in the store that changes by comparison only: so a place where all meet either
counts a worker that was started again or comes before it, and all see the same."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import msgspec

KEY = "roll"


@dataclass(frozen=True)
class Roll:
    """`lives[r]` is which start of worker r is meant. `place` is the last place where all have met, `crew` who was
    there and `lives_then` the lives at that time. `generation` is the last place where all have forgotten what was
    launched."""

    lives: tuple[int, ...]
    place: int = 0
    crew: tuple[int, ...] = ()
    lives_then: tuple[int, ...] = ()
    generation: int = 0
    opened: int = 0
    """The newest place to which somebody has come that is the first of a rest."""

    @property
    def rests(self) -> bool:
        """Whether some wait for others: each rest has two places, and between them nobody comes in."""
        return self.place % 2 == 1 or self.opened > self.place

    @property
    def text(self) -> str:
        return msgspec.json.encode(asdict(self)).decode()


def read_roll(store: Any, workers: int) -> Roll:
    if not store.check([KEY]):
        return Roll((0,) * workers)
    return msgspec.json.decode(store.get(KEY), type=Roll)


def change_roll(store: Any, old: Roll, new: Roll) -> bool:
    """Whether it was `old` until now, and is `new`."""
    before = old.text if store.check([KEY]) else ""
    return bool(store.compare_set(KEY, before, new.text).decode() == new.text)
