"""This worker's links in simulated time: out and in, each of which carries one message at a time.

All workers do alike at the same time, so of another's messages it is known when they leave: when this worker's own, of
the same leg, do. A message keeps the line busy for its bytes and arrives the fixed part of its line later.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from relaxc.manifest import ExchangePlan
from relaxc.schedule.cost_links import reduce_line
from relaxc.schedule.network import Line, Network
from relaxc.schedule.predict_machine import Busy, Machine, Mark, Thread
from relaxc.schedule.sharing import Sharing, sharing_of
from relaxc.schedule.timeline import Span


@dataclass
class _Leg:
    """When this worker's messages of a leg have left and how many others' have been asked for."""

    left: list[float] = field(default_factory=list)
    heard: int = 0


class Links:
    def __init__(self, machine: Machine, network: Network, workers: int, rank: int) -> None:
        self._machine, self._network, self._workers, self._rank = machine, network, workers, rank
        self._sharing: dict[int, Sharing] = {}
        self._legs: dict[Any, _Leg] = defaultdict(_Leg)
        self._out: dict[bool, float] = defaultdict(float)
        self._in: dict[bool, float] = defaultdict(float)

    def sharing(self, exchange: ExchangePlan | None) -> Sharing:
        """What `send` and `receive` are told of its messages; None: of what everyone tells everyone."""
        found = self._sharing.get(id(exchange))
        if found is None:
            found = sharing_of(exchange, self._workers, self._rank, self._network.per_machine)
            self._sharing[id(exchange)] = found
        return found

    def _line(self, sender: int, receiver: int, shared: float) -> tuple[Line, bool]:
        """And whether it is within a machine. Those of a machine share what leads out of it."""
        size = self._network.per_machine
        within = size > 1 and sender // size == receiver // size
        line = self._network.between(sender, receiver)
        return Line(line.fixed, line.each * (1 if within else shared)), within

    def send(self, leg: Any, peer: int, count: int, bucket: int, shared: float = 1.0) -> Mark:
        """`count` bytes, now or when the line is free. The mark is set when they have left."""
        line, within = self._line(self._rank, peer, shared)
        begin = max(self._machine.now, self._out[within])
        end = begin + line.each * count
        self._out[within] = end
        self._machine.spans.append(Span("link", begin, end, f"{count} bytes to {peer}", bucket))
        self._legs[leg].left.append(end)
        self._machine.start(self._work(self._machine.at(begin), count))
        return self._machine.at(end)

    def _work(self, when: Mark, count: int) -> Thread:
        yield when
        yield Busy(self._network.wire.at(count), "", "wire")

    def receive(self, leg: Any, peer: int, count: int, shared: float = 1.0) -> Mark:
        """Set when the next message of this leg is here."""
        line, within = self._line(peer, self._rank, shared)
        known = self._legs[leg]
        left = known.left[min(known.heard, len(known.left) - 1)] if known.left else self._machine.now
        known.heard += 1
        end = max(left, self._in[within] + line.each * count)
        self._in[within] = end
        here = self._machine.at(end + line.fixed)
        self._machine.start(self._work(here, count))
        return here

    def reduce(self, count: int, bucket: int) -> Mark:
        """An all-reduce of so many bytes, which keeps the line busy all the while."""
        begin = max(self._machine.now, self._out[False])
        end = begin + reduce_line(self._network, self._workers).at(count)
        self._out[False] = end
        self._machine.spans.append(Span("link", begin, end, f"all-reduce of {count} bytes", bucket))
        for _ in range(2 if self._workers > 1 else 0):  # about as much goes out as comes in
            self._machine.start(self._work(self._machine.at(begin), count))
        return self._machine.at(end)
