"""Which parameters leave together, and by which of several options, each a codec and a route: an exact dynamic
programme.

Parameters come in the order in which they are ready. A bucket is a run of them; it is encoded once its last one is
ready, then sent, then decoded, by three engines that each do one bucket after the other. What matters of the buckets
chosen so far is how many parameters they hold and when each engine is free, so of the choices that come to the same
parameters those are kept that no other beats on all three engines: a Pareto front (partition_bounds.py).

A choice is given up, too, if it can't end before the best known one. At most `WIDTH` choices wait for an option; where
there were more, those that might end earliest are kept, and `bound` says what the best of the others could have come
to. Measured with 1,000 parameters and one codec, a few hundred wait at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from relaxc.schedule.partition_bounds import DECODE, ENCODE, LINK, NEVER, Bounds, stacked, unbeaten

if TYPE_CHECKING:
    from numpy.typing import NDArray

WIDTH = 256
ALONE = 4
"""Times as many where there is one option."""
COARSE = 128
"""Parameters for which codecs are chosen one by one; of more, neighbours are put together before."""
FIRST_WIDTH = 6
"""Of a quick search, whose result the exact one has to beat."""
SAME = 1e-9
"""Ends that differ by this part of themselves are the same."""
Seconds = tuple[float, float, float]
"""Of encoding, link and decoding."""


@dataclass(frozen=True, slots=True)
class Option:
    """A way to exchange: what it costs for each bucket, and for each parameter."""

    fixed: Seconds
    added: Sequence[Seconds]


@dataclass(frozen=True, slots=True)
class Job:
    """Something else that the engines do, when it is ready and before buckets that are ready then."""

    ready: float
    cost: Seconds


@dataclass(frozen=True, slots=True)
class Cut:
    """A bucket of parameters [first, end), by that option."""

    first: int
    end: int
    option: int


@dataclass(frozen=True, slots=True)
class Partition:
    """`finish` is when the last engine is done; no partition ends before `bound`, which is `finish` where the search
    was exact. `widest` is how many choices waited at once."""

    cuts: tuple[Cut, ...]
    finish: float
    bound: float
    widest: int


def partition(
    ready: Sequence[float], options: Sequence[Option], sizes: Sequence[int] = (), limit: int = 0,
    beside: Sequence[Job] = (), width: int = WIDTH,
) -> Partition:  # fmt: skip
    """`ready` ascends; of options that end alike the first is taken. With `limit`, a bucket of several parameters has
    at most so many bytes of `sizes`."""
    if not ready:
        return Partition((), 0.0, 0.0, 0)
    kept = unbeaten_options(options)
    best = _best(ready, [options[n] for n in kept], sizes, limit, beside, width)
    search = _Search(ready, options, sizes, limit, beside)
    cuts = merged([replace(cut, option=kept[cut.option]) for cut in best.cuts], search)
    cuts = merged(eased(cuts, search), search)
    return Partition(cuts, search.finish_of(cuts), best.bound, best.widest)


def _best(
    ready: Sequence[float], options: Sequence[Option], sizes: Sequence[int], limit: int, beside: Sequence[Job],
    width: int,
) -> Partition:  # fmt: skip
    """The one that ends first."""
    search = _Search(ready, options, sizes, limit, beside)
    if len(options) > 1 and len(ready) > COARSE:
        return _coarse(search, ready, options, sizes, limit, beside, width)
    found = _first(search, ready, options, sizes, limit, beside)
    exact = search.run(width if len(options) > 1 else width * ALONE, found.finish)
    best = exact if exact.cuts else found
    return replace(best, bound=min(best.finish, exact.bound), widest=exact.widest)


def unbeaten_options(options: Sequence[Option]) -> list[int]:
    """Those that no other beats on all three engines for a bucket and for each parameter: with the other in its place
    nothing ends later. Of options that are the same, the first."""
    costs = np.stack([np.concatenate([stacked([o.fixed]), stacked(o.added)]).ravel() for o in options])
    kept: list[int] = []
    for number, cost in enumerate(costs):
        others = [n for n in range(len(costs)) if n != number and np.all(costs[n] <= cost)]
        if not any(np.any(costs[n] < cost) or n < number for n in others):
            kept.append(number)
    return kept


def _first(
    search: _Search, ready: Sequence[float], options: Sequence[Option], sizes: Sequence[int], limit: int,
    beside: Sequence[Job],
) -> Partition:  # fmt: skip
    """What the exact search has to beat: the best by one option alone, or a quick search."""
    quick = search.run(FIRST_WIDTH, np.inf)
    if len(options) == 1:
        return quick
    alone = [partition(ready, [option], sizes, limit, beside) for option in options]
    number, found = min(enumerate(alone), key=lambda each: each[1].finish)
    cuts = tuple(replace(cut, option=number) for cut in found.cuts)
    return replace(found, cuts=cuts) if found.finish <= quick.finish else quick


def _coarse(
    search: _Search, ready: Sequence[float], options: Sequence[Option], sizes: Sequence[int], limit: int,
    beside: Sequence[Job], width: int,
) -> Partition:  # fmt: skip
    """Of so many parameters neighbours are first put together to `COARSE` runs of about the same work. Which bucket one
    in the middle of a run belongs to makes a difference of a run's work at most."""
    borders = search.runs(COARSE)
    pairs = list(pairwise(borders))
    rough = partition(
        [ready[end - 1] for _, end in pairs],
        [replace(o, added=[_sum(o.added[first:end]) for first, end in pairs]) for o in options],
        [sum(sizes[first:end]) for first, end in pairs], limit, beside, width,
    )  # fmt: skip
    cuts = tuple(Cut(borders[cut.first], borders[cut.end], cut.option) for cut in rough.cuts)
    return Partition(cuts, search.finish_of(cuts), search.least, rough.widest)


def _sum(costs: Sequence[Seconds]) -> Seconds:
    encode, link, decode = (sum(of) for of in zip(*costs, strict=True))
    return encode, link, decode


def eased(cuts: Sequence[Cut], search: _Search) -> tuple[Cut, ...]:
    """With the first option wherever that ends no later: of codecs, the one that loses least."""
    made, best = list(cuts), search.finish_of(cuts) * (1 + SAME) if cuts else 0.0
    for position, cut in enumerate(cuts):
        for option in range(cut.option):
            tried = [*made[:position], replace(cut, option=option), *made[position + 1 :]]
            if search.finish_of(tried) <= best:
                made = tried
                break
    return tuple(made)


def merged(cuts: Sequence[Cut], search: _Search) -> tuple[Cut, ...]:
    """With as many neighbours in one as end no later together, by the first of their options that does: each bucket has
    costs that no profile shows."""
    made, best = list(cuts), search.finish_of(cuts) * (1 + SAME) if cuts else 0.0
    position = 0
    while position + 1 < len(made):
        one, other = made[position : position + 2]
        for option in sorted({one.option, other.option}):
            both = Cut(one.first, other.end, option)
            tried = [*made[:position], both, *made[position + 2 :]]
            if search.fits(both) and search.finish_of(tried) <= best:
                made = tried
                break
        else:
            position += 1
    return tuple(made)


@dataclass
class _Choices:
    """Those that wait for a next bucket. `free` is (3, choices); `numbers` are where they stand in the log."""

    sent: NDArray[Any]
    free: NDArray[Any]
    numbers: NDArray[Any]

    def kept(self, which: NDArray[Any]) -> _Choices:
        return _Choices(self.sent[which], self.free[:, which], self.numbers[which])

    def and_(self, more: _Choices) -> _Choices:
        return _Choices(
            np.concatenate([self.sent, more.sent]), np.concatenate([self.free, more.free], axis=1),
            np.concatenate([self.numbers, more.numbers]),
        )  # fmt: skip


@dataclass
class _Log:
    """By number of a choice, the one that it goes on from, its last bucket's end and option."""

    parents: list[int] = field(default_factory=lambda: [-1])
    ends: list[int] = field(default_factory=lambda: [0])
    options: list[int] = field(default_factory=lambda: [-1])

    def add(self, parents: NDArray[Any], end: int, options: NDArray[Any]) -> NDArray[Any]:
        first = len(self.parents)
        self.parents += parents.tolist()
        self.ends += [end] * len(parents)
        self.options += options.tolist()
        return np.arange(first, len(self.parents))

    def cuts(self, number: int) -> tuple[Cut, ...]:
        found = []
        while (parent := self.parents[number]) >= 0:
            found.append(Cut(self.ends[parent], self.ends[number], self.options[number]))
            number = parent
        return tuple(reversed(found))


class _Search:
    def __init__(
        self, ready: Sequence[float], options: Sequence[Option], sizes: Sequence[int], limit: int, beside: Sequence[Job]
    ) -> None:
        self._ready = np.array(ready, float)
        self._fixed = stacked([option.fixed for option in options])
        added = np.stack([stacked(option.added) for option in options])
        self._beside = sorted(beside, key=lambda job: job.ready)
        self._bounds = Bounds(self._ready, self._fixed, added, stacked([job.cost for job in self._beside]))
        self._bytes = np.concatenate([[0], np.cumsum(sizes)]) if limit else None
        self._limit = limit

    # --- one search

    def run(self, width: int, best: float) -> Partition:
        """The best partition that ends before `best`: without cuts where there is none."""
        self._width, self._best, self._bound, self._widest = width, best, np.inf, 0
        self._log, self._jobs = _Log(), list(self._beside)
        start = _Choices(np.array([0]), np.full((3, 1), NEVER), np.array([0]))
        waiting = [start] * self._bounds.options
        for end in range(1, len(self._ready) + 1):
            jobs = self._due(self._ready[end - 1])
            waiting = [self._pruned(_after(jobs, each), end, option) for option, each in enumerate(waiting)]
            self._widest = max(self._widest, sum(len(each.sent) for each in waiting))
            made, options = self._extended(waiting, end)
            if end < len(self._ready):
                new = self._new(made, options, end)
                waiting = [each.and_(new) for each in waiting]
        return self._ended(made, options)

    def _due(self, moment: float) -> list[Job]:
        due = [job for job in self._jobs if job.ready <= moment]
        self._jobs = self._jobs[len(due) :]
        return due

    def _pruned(self, choices: _Choices, end: int, option: int) -> _Choices:
        """What a next bucket up to `end` may go on from."""
        if self._bytes is not None:
            size = self._bytes[end] - self._bytes[choices.sent]
            choices = choices.kept((size <= self._limit) | (choices.sent == end - 1))
        choices.free = self._bounds.settle(choices.sent, choices.free, self._ready[end - 1])
        choices = self._hopeful(choices, end - 1)
        choices = choices.kept(self._bounds.best(choices.sent, choices.free, option))
        if len(choices.sent) <= self._width:
            return choices
        ends = self._bounds.ends(choices.sent, choices.free)
        order = np.argsort(ends, kind="stable")
        self._bound = min(self._bound, float(ends[order[self._width]]))
        return choices.kept(order[: self._width])

    def _hopeful(self, choices: _Choices, sent: int) -> _Choices:
        """Those that may end before the best known one. All have to wait for what is not ready before parameter number
        `sent` is."""
        ends = np.maximum(self._bounds.ends(choices.sent, choices.free), self._bounds.least[sent])
        return choices.kept(ends < self._best * (1 - SAME))

    def _extended(self, waiting: Sequence[_Choices], end: int) -> tuple[_Choices, NDArray[Any]]:
        """Each choice with a bucket up to `end`, by the option for which it waits."""
        frees = []
        for option, choices in enumerate(waiting):
            sums = self._bounds.sums[option]
            cost = self._fixed[option][:, None] + sums[:, end, None] - sums[:, choices.sent]
            frees.append(_through(choices.free, self._ready[end - 1], cost))
        numbers = np.concatenate([choices.numbers for choices in waiting])
        options = np.repeat(np.arange(len(waiting)), [len(choices.sent) for choices in waiting])
        return _Choices(np.full(len(numbers), end), np.concatenate(frees, axis=1), numbers), options

    def _new(self, made: _Choices, options: NDArray[Any], end: int) -> _Choices:
        moment = min([self._ready[end], *(job.ready for job in self._jobs[:1])])
        free = self._bounds.settle(made.sent, made.free, moment)
        hopeful = np.maximum(self._bounds.ends(made.sent, free), self._bounds.least[end]) < self._best * (1 - SAME)
        places = np.flatnonzero(hopeful)
        places = places[unbeaten(free[:, places])] if len(places) else places
        numbers = self._log.add(made.numbers[places], end, options[places])
        return _Choices(made.sent[places], free[:, places], numbers)

    def _ended(self, made: _Choices, options: NDArray[Any]) -> Partition:
        ends = _after(self._jobs, made).free[DECODE]
        if not len(ends) or ends.min() >= self._best * (1 - SAME):
            return Partition((), self._best, self._bound, self._widest)
        place = int(ends.argmin())
        number = self._log.add(made.numbers[[place]], len(self._ready), options[[place]])[0]
        return Partition(self._log.cuts(int(number)), float(ends[place]), self._bound, self._widest)

    # --- given buckets

    @property
    def least(self) -> float:
        """Nothing ends earlier."""
        return float(self._bounds.least[0])

    def runs(self, count: int) -> list[int]:
        """Borders of at most so many runs of parameters with about the same work, or one parameter."""
        work = self._bounds.sums.sum(1).max(0) + np.arange(len(self._ready) + 1) * SAME
        marks = np.searchsorted(work, work[-1] * np.arange(1, count) / count, side="right")
        return sorted({0, *marks.tolist(), len(self._ready)})

    def fits(self, cut: Cut) -> bool:
        return self._bytes is None or bool(self._bytes[cut.end] - self._bytes[cut.first] <= self._limit)

    def finish_of(self, cuts: Sequence[Cut]) -> float:
        mine = [Job(float(self._ready[cut.end - 1]), self._cost(cut)) for cut in cuts]
        return finish_of([*self._beside, *mine])

    def _cost(self, cut: Cut) -> Seconds:
        sums = self._bounds.sums[cut.option]
        encode, link, decode = (self._fixed[cut.option] + sums[:, cut.end] - sums[:, cut.first]).tolist()
        return encode, link, decode


def finish_of(jobs: Sequence[Job]) -> float:
    """When all are done; of those that are ready together the first one goes first."""
    free = (NEVER, NEVER, NEVER)
    for job in sorted(jobs, key=lambda job: job.ready):
        encode, link, decode = job.cost
        encoded = max(free[ENCODE], job.ready) + encode
        sent = max(free[LINK], encoded) + link
        free = (encoded, sent, max(free[DECODE], sent) + decode)
    return free[DECODE]


def _after(jobs: Sequence[Job], choices: _Choices) -> _Choices:
    for job in jobs:
        choices = _Choices(choices.sent, _through(choices.free, job.ready, stacked([job.cost]).T), choices.numbers)
    return choices


def _through(free: NDArray[Any], ready: float, cost: NDArray[Any]) -> NDArray[Any]:
    encoded = np.maximum(free[ENCODE], ready) + cost[ENCODE]
    sent = np.maximum(free[LINK], encoded) + cost[LINK]
    return np.stack([encoded, sent, np.maximum(free[DECODE], sent) + cost[DECODE]])
