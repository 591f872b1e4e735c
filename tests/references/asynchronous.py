"""Asynchronous algorithms from their update equations, in plain numpy: given who trains when, and what leaves, lands and
meets whom in which of a worker's iterations. Shares no code with relaxc."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = Any
Partner = tuple[int, int]
"""(rank, its round)"""


@dataclass(frozen=True)
class Moment:
    """What happens in one iteration of a worker: the round that it launches, the one that lands, and with whom."""

    launches: int | None = None
    lands: int | None = None
    partner: Partner | None = None


Schedule = Mapping[tuple[int, int], Moment]
"""By worker and its iteration."""


@dataclass
class Simulation:
    """`snapshots` are what has been sent, by (worker, round)."""

    weights: list[Array]
    rate: float
    gradient: Callable[[int, Array], Array]
    snapshots: dict[tuple[int, int], Array] = field(default_factory=dict)
    means: dict[int, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """For what an algorithm has besides."""

    def run(self, turns: Sequence[int], schedule: Schedule) -> list[Array]:
        done = [0] * len(self.weights)
        for w in turns:
            self.turn(w, schedule.get((w, done[w]), Moment()))
            done[w] += 1
        return self.weights

    def turn(self, w: int, moment: Moment) -> None:
        """Step, then launch or land."""
        self.weights[w] = self.weights[w] - self.rate * self.gradient(w, self.weights[w])
        self.exchange(w, moment)

    def exchange(self, w: int, moment: Moment) -> None:
        if moment.lands is not None:
            self.land(w, moment)
        if moment.launches is not None:
            self.snapshots[w, moment.launches] = self.weights[w].copy()

    def land(self, w: int, moment: Moment) -> None:
        raise NotImplementedError


class AsyncAverage(Simulation):
    """x += average of the snapshots - own snapshot"""

    def land(self, w: int, moment: Moment) -> None:
        round = moment.lands
        average = sum(self.snapshots[v, round] for v in range(len(self.weights))) / len(self.weights)
        self.weights[w] = self.weights[w] + average - self.snapshots[w, round]


class Swarm(Simulation):
    """x += (S_i + S_j) / 2 - S_i"""

    def land(self, w: int, moment: Moment) -> None:
        own = self.snapshots[w, moment.lands]
        other = own if moment.partner is None else self.snapshots[moment.partner]
        self.weights[w] = self.weights[w] + (own + other) / 2 - own


class AdPsgd(Swarm):
    """As a swarm of period 1, but the gradient of the weights with which an iteration begins is applied last."""

    def turn(self, w: int, moment: Moment) -> None:
        gradient = self.gradient(w, self.weights[w])
        self.exchange(w, moment)
        self.weights[w] = self.weights[w] - self.rate * gradient


class Swarm8bit(Simulation):
    """Both move by half the difference of the two quantised values: c = floor(x / s + u) mod q, and decoded next to y
    it is the value of that residue that is nearest to y. `noise(worker, round)` are the u."""

    cell, levels = float(np.float32(0.001)), 256  # the cell's side travels with the message
    noise: Callable[[int, int], Array]

    def quantised(self, sent: Partner, near: Array) -> Array:
        """What would come out wrong, in a block of up to 512, comes out near what was sent."""
        x = self.snapshots[sent]
        level = np.floor(x / self.cell + self.noise(*sent))
        residue = np.mod(level, self.levels)

        def found(key: Array) -> Array:
            return self.cell * (residue + self.levels * np.round((key / self.cell - residue) / self.levels))

        wrong = np.abs(found(near) - self.cell * level) > self.cell / 2
        return found(x) if wrong.any() else found(near)

    def land(self, w: int, moment: Moment) -> None:
        own = self.snapshots[w, moment.lands]
        assert moment.lands is not None
        mine = self.quantised((w, moment.lands), own)
        theirs = mine if moment.partner is None else self.quantised(moment.partner, own)
        self.weights[w] = self.weights[w] + (theirs - mine) / 2


class AsyncByteGrad(Simulation):
    """What has been moved since the last launch is averaged in 8 bits, every encoder adding what it lost before."""

    def __post_init__(self) -> None:
        self.base = [x.copy() for x in self.weights]
        self.lost = [np.zeros_like(x) for x in self.weights]
        self.owner = np.zeros_like(self.weights[0])
        self.codes: dict[tuple[int, int], Array] = {}

    @staticmethod
    def coded(x: Array) -> Array:
        low = np.float64(np.float32(x.min()))
        scale = np.float64(np.float32((x.max() - low) / 255))
        return low + np.clip(np.round((x - low) / scale), 0, 255) * scale if scale else np.full_like(x, low)

    def exchange(self, w: int, moment: Moment) -> None:
        if moment.lands is not None:
            moved = self.mean(moment.lands)
            self.weights[w] = self.weights[w] + moved - self.snapshots[w, moment.lands]
            self.base[w] = self.base[w] + moved
        if moment.launches is not None:
            own = self.weights[w] - self.base[w]
            self.snapshots[w, moment.launches] = own
            self.codes[w, moment.launches] = self.coded(own + self.lost[w])
            self.lost[w] = own + self.lost[w] - self.codes[w, moment.launches]

    def mean(self, round: int) -> Array:
        if round not in self.means:
            workers = len(self.weights)
            total = sum(self.codes[v, round] for v in range(workers)) / workers + self.owner
            self.means[round] = self.coded(total)
            self.owner = total - self.means[round]
        return self.means[round]
