"""One launch of an asynchronous exchange, and what is counted of all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from relaxc.attach.partners import Meeting


class Stage(Enum):
    MADE = "it is being encoded"
    OFFERED = "it waits for those that it meets"
    UNDER_WAY = "under way"
    ARRIVED = "all results are there"
    DROPPED = "a partner was lost"


@dataclass
class Flight:
    """One launch: its number, the iteration, the rounds of the blocks that ran then. `peers` are the others that took
    part, with the numbers of their launches."""

    number: int
    t: int
    rounds: Mapping[int, int]
    stage: Stage = Stage.MADE
    missing: set[tuple[int, int]] = field(default_factory=set)
    """(transfer, site) that are still to be encoded."""

    meetings: dict[int, Meeting] = field(default_factory=dict)
    peers: tuple[tuple[int, int], ...] = ()
    jobs: list[Any] = field(default_factory=list)
    since: float = 0.0
    why: str = ""


@dataclass
class LaneCounts:
    """`staleness` is the largest age, in iterations, of what has landed; `waiting_seconds` what launches have waited
    for their partners, `exposed_seconds` what the loop waited for those that may not become older."""

    launches: int = 0
    landed: int = 0
    dropped: int = 0
    waiting_seconds: float = 0.0
    exposed_seconds: float = 0.0
    staleness: int = 0
