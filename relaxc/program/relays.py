"""A relay by its definition: what each worker sends its neighbours in a tree, and what it makes of what they send.

To each neighbour goes the sum of what the others sent last time, in rank order, plus one's own value; what arrives is
the sum of what all have sent now, plus one's own. So everyone's value reaches everyone, once, as old as the path to it
is long, less one.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxc.program.functions import Array

Held = list[dict[int, Array]]
"""By worker and neighbour: what that one sent last time. What is not there yet is zeros."""


@dataclass(frozen=True)
class Relay:
    """One round. `neighbours` are in rank order, by worker; `held` changes."""

    values: Sequence[Array]
    neighbours: Sequence[Sequence[int]]
    held: Held

    def heard(self, worker: int, peer: int) -> Array:
        return self.held[worker].setdefault(peer, np.zeros_like(self.values[worker]))

    def run(self) -> list[Array]:
        """What each worker receives."""
        sent = {(w, peer): self._sent(w, peer) for w, near in enumerate(self.neighbours) for peer in near}
        results = []
        for w, near in enumerate(self.neighbours):
            arrived = {peer: sent[peer, w] for peer in near}
            results.append(_plus(list(arrived.values()), self.values[w]))
            self.held[w].update(arrived)
        return results

    def _sent(self, worker: int, peer: int) -> Array:
        return _plus([self.heard(worker, k) for k in self.neighbours[worker] if k != peer], self.values[worker])


def _plus(terms: Sequence[Array], own: Array) -> Array:
    with np.errstate(all="ignore"):
        return functools.reduce(np.add, terms) + own if terms else own
