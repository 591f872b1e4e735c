"""How long buckets and codecs take to be chosen for 1,000 parameters, and what greedy buckets would cost."""

import argparse
import random
import sys
import time
from collections.abc import Sequence

from on_hosts import Figure, show

from relaxc.schedule.partition import Option, partition

COUNT = 1000
BACKWARD = 0.1
TOTAL = 100e6
"""Bytes of gradient."""
BITS = {"none": 32, "bf16": 16, "8bit": 8.1, "4bit": 4.1}
RATES = (1e8, 1e9, 1e10)
LATENCY = 2e-4
GREEDY = (1 << 20, 25 << 20)
"""Bytes of the first bucket and of the others, as in DistributedDataParallel."""


def sizes(seed: int = 0) -> list[float]:
    drawn = random.Random(seed)
    raw = [drawn.lognormvariate(9, 2.5) for _ in range(COUNT)]
    return [each * TOTAL / sum(raw) for each in raw]


def ready(of: Sequence[float]) -> list[float]:
    moments, passed = [], 0.0
    for size in of:
        passed += size
        moments.append(BACKWARD * passed / sum(of))
    return moments


def option(bits: float, of: Sequence[float], rate: float) -> Option:
    """Four workers: half as much again is sent, twice as much decoded as encoded."""
    work = 0.0 if bits == BITS["none"] else 3e-10
    call = 1e-5 if work else 0.0
    return Option((call, LATENCY, call), [(s * work, 1.5 * s * bits / 32 * 8 / rate, 2 * s * work) for s in of])


def greedy(moments: Sequence[float], of: Sequence[float], way: Option) -> float:
    """When buckets that are closed by size are through."""
    encoder = link = decoder = filled = 0.0
    cost, first = list(way.fixed), True
    for place, size in enumerate(of):
        cost = [a + b for a, b in zip(cost, way.added[place], strict=True)]
        filled += size
        if filled >= GREEDY[not first] or place == len(of) - 1:
            encoder = max(encoder, moments[place]) + cost[0]
            link = max(link, encoder) + cost[1]
            decoder = max(decoder, link) + cost[2]
            cost, filled, first = list(way.fixed), 0.0, False
    return decoder


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    of = sizes()
    moments = ready(of)
    found = []
    for rate in RATES:
        ways = [option(bits, of, rate) for bits in BITS.values()]
        at = f"at {rate / 1e6:g} Mbit/s"
        start = time.perf_counter()
        alone = [partition(moments, [way]).finish for way in ways]
        each = (time.perf_counter() - start) / len(ways)
        start = time.perf_counter()
        mixed = partition(moments, ways)
        taken = time.perf_counter() - start
        found += [
            Figure(f"seconds for {COUNT} parameters, one codec, {at}", 2.0, each, at_most=True),
            Figure(f"seconds for {COUNT} parameters, four codecs, {at}", 2.0, taken, at_most=True),
            Figure(f"greedy buckets of 8bit to the best {at}", 1.0, greedy(moments, of, ways[2]) / alone[2]),
            Figure(f"chosen codecs to the best alone {at}", 1.05, mixed.finish / min(alone), at_most=True),
        ]
    return show(found, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
