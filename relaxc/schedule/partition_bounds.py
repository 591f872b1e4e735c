"""What is known of a choice of buckets before the rest is chosen: when it can end at best, and which of two is better.

A choice is the number of parameters that it has sent and when it leaves each engine free. Its *rest* is any way to send
the others. The end of all is the longest of three paths: from an engine on, through the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

ENCODE, LINK, DECODE = range(3)
WEIGHTS = np.array(
    [
        (0, 1, 0), (1, 0, 0), (0, 0, 1), (0.5, 0.5, 0), (0, 0.5, 0.5), (1 / 3, 1 / 3, 1 / 3), (0.2, 0.8, 0),
        (0, 0.8, 0.2), (0.8, 0.2, 0), (0.1, 0.8, 0.1), (0, 0.2, 0.8),
    ]
)  # fmt: skip
"""Each bounds the end: the work that is left, weighted over engines, has to be done."""
NEVER = -np.inf


class Bounds:
    """`fixed` is (options, 3), `added` (options, parameters, 3), `jobs` (jobs, 3) what else the engines do. Arrays by
    number of parameters sent have one entry more than there are parameters."""

    def __init__(self, ready: NDArray[Any], fixed: NDArray[Any], added: NDArray[Any], jobs: NDArray[Any]) -> None:
        self.count = len(ready)
        self.options = len(fixed)
        self.sums = np.zeros((self.options, 3, self.count + 1))
        np.cumsum(added.transpose(0, 2, 1), axis=2, out=self.sums[:, :, 1:])
        self.gains = _gains(added, jobs)
        self.left = np.array([_left((added @ w).min(0), (fixed @ w).min()) for w in WEIGHTS])
        self._encoding_matters = _encoding_matters(fixed, added, jobs)
        self._decoding_matters = _decoding_matters(fixed, added, jobs)
        self._shortest_encode = _next_at_least(fixed, added, jobs, ENCODE)
        alone = (added.sum(2) + fixed.sum(1)[:, None]).min(0)
        ends = np.maximum(ready + alone, (ready + self.left[:, : self.count]).max(0))
        self.least = np.append(np.maximum.accumulate(ends[::-1])[::-1], NEVER)
        """When all can be over at best, whatever the engines did before, since parameters are not ready earlier."""

    def settle(self, sent: NDArray[Any], free: NDArray[Any], ready: float) -> NDArray[Any]:
        """`free` (3, choices) as it matters: nothing is encoded before `ready`, and an engine that no rest would wait
        for is free at once."""
        encode = np.maximum(free[ENCODE], ready)
        link = np.maximum(free[LINK], encode + self._shortest_encode[sent])
        encode = np.where(encode + self._encoding_matters[sent] <= link, NEVER, encode)
        decode = np.where(free[DECODE] <= link + self._decoding_matters[sent], NEVER, free[DECODE])
        return np.stack([encode, link, decode])

    def ends(self, sent: NDArray[Any], free: NDArray[Any]) -> NDArray[Any]:
        """When everything is over at best."""
        work: NDArray[Any] = (WEIGHTS @ np.maximum(free, -1e300) + self.left[:, sent]).max(0)
        ends: NDArray[Any] = np.maximum(work, self.least[sent])
        return ends

    def best(self, sent: NDArray[Any], free: NDArray[Any], option: int) -> NDArray[Any]:
        """Which choices to keep for a next bucket by `option`. One that has sent more beats one that has sent less
        where its engines are later by no more than what the other would have to do in addition."""
        return unbeaten(np.vstack([-sent.astype(float), free - self.gains[option][:, sent]]))


def unbeaten(criteria: NDArray[Any]) -> NDArray[Any]:
    """Of columns, those that no other is at most in every row; of equal ones the first."""
    order = np.lexsort(criteria[::-1])
    rows = criteria[:, order]
    beaten = np.tri(len(order), k=-1, dtype=bool).T
    for row in rows[1:]:
        beaten = beaten & (row[:, None] <= row[None, :])
    found = np.zeros(len(order), bool)
    found[order[~beaten.any(0)]] = True
    return found


def _gains(added: NDArray[Any], jobs: NDArray[Any]) -> NDArray[Any]:
    """By option, engine and number of parameters sent: the work that a choice has behind it. Where other jobs come
    between, an engine's is at most that of those behind it, so that a job that waits for one keeps the order."""
    counted = added
    if len(jobs):
        counted = np.minimum.accumulate(added[:, :, ::-1], axis=2)[:, :, ::-1]
    zero = np.zeros((added.shape[0], 3, 1))
    return np.concatenate([zero, np.cumsum(counted.transpose(0, 2, 1), axis=2)], axis=2)


def _left(each: NDArray[Any], once: float) -> NDArray[Any]:
    """Sums over the parameters that are not sent yet, and `once` where there are any."""
    sums = np.zeros(len(each) + 1)
    sums[:-1] = np.cumsum(each[::-1])[::-1] + once
    return sums


def _buckets_left(count: int) -> NDArray[Any]:
    return count - np.arange(count + 1)


def _encoding_matters(fixed: NDArray[Any], added: NDArray[Any], jobs: NDArray[Any]) -> NDArray[Any]:
    """By how much the path from the encoder through a rest is longer than that from the link, at most."""
    encode, link, calls = added[:, :, ENCODE], added[:, :, LINK], (fixed[:, ENCODE] - fixed[:, LINK]).max()
    longest = _left(np.maximum(encode, encode - link).max(0), fixed[:, ENCODE].max())
    longest += _buckets_left(added.shape[1]) * max(0.0, calls) + jobs[:, ENCODE].sum()
    return longest


def _decoding_matters(fixed: NDArray[Any], added: NDArray[Any], jobs: NDArray[Any]) -> NDArray[Any]:
    """By how much the path from the link through a rest is longer than that from the decoder, at least: by the next
    bucket on the link, and by all on the link where the last one alone is decoded behind them."""
    ahead, many = (fixed[:, LINK] - fixed[:, DECODE]).min(), _buckets_left(added.shape[1])
    last = 0.0 if len(jobs) else fixed[:, DECODE].min()
    through = _left((added[:, :, LINK] - added[:, :, DECODE]).min(0), last)
    through += np.where(many > 0, ahead if ahead >= 0 else ahead * many, 0.0)
    through += np.minimum(0.0, jobs[:, LINK] - jobs[:, DECODE]).sum()
    found: NDArray[Any] = np.maximum(through, _next_at_least(fixed, added, jobs, LINK))
    return found


def _next_at_least(fixed: NDArray[Any], added: NDArray[Any], jobs: NDArray[Any], engine: int) -> NDArray[Any]:
    """What comes next keeps the engine busy for at least so long."""
    shortest: NDArray[Any] = np.append((added[:, :, engine] + fixed[:, engine, None]).min(0), 0.0)
    if len(jobs):
        shortest = np.minimum(shortest, jobs[:, engine].min())
    return shortest


def stacked(costs: Sequence[tuple[float, float, float]]) -> NDArray[Any]:
    return np.array(costs, float).reshape(len(costs), 3)
