"""Messages between pairs, and dense all-reduces, timed over sizes. Times are medians of repetitions, in each of which
all sizes come once, so that a passing disturbance hits all of them alike.

Links are measured while they are busy, as in training: on an idle one, buffers and shapers pass a first burst at once,
and short messages would seem to cost nothing. So another message goes before each that is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from statistics import median

import torch
import torch.distributed as dist

from relaxc.probe.pairs import Pair

SIZES = tuple(1024 * 4**k for k in range(7))
"""1 KB to 4 MB."""
FEWEST, MOST = 3, 15
"""Repetitions, as the time allows."""
SHARE = 16
"""A size that takes more than this part of the time for all ends the list: the next is four times as long."""
BULK = 1 << 18
"""Bytes of the message that makes a link busy: more than what buffers of switches and shapers let through at once."""
OVER = 0

Times = dict[int, float]
"""Seconds by bytes."""


def measured(seconds: float, once: Callable[[int], float], clock: Callable[[], float] = time.perf_counter) -> Times:
    """Medians of `once(size)`, which says how long it took, over repetitions that take about `seconds` by the clock."""
    found: dict[int, list[float]] = {}
    sizes: list[int] = []
    began = clock()
    for size in _ascending(found, seconds):
        found[size] = [once(size)]
        sizes.append(size)
    for repetition in range(1, MOST):
        if repetition >= FEWEST and (clock() - began) * (repetition + 1) / repetition > seconds:
            break
        for size in sizes:
            found[size].append(once(size))
    return {size: median(times) for size, times in found.items()}


def _ascending(found: Mapping[int, list[float]], seconds: float) -> Iterator[int]:
    for size in SIZES:
        yield size
        if found[size][0] > seconds / SHARE:
            return


def busy(message: Callable[[int], float], seconds: float) -> Callable[[int], float]:
    """`message`, each time with another before it: of BULK bytes, or of fewer where that took too long."""
    message(SIZES[0])  # connections are made by the first
    taken = message(BULK)
    bulk = max(1, int(BULK * min(1.0, seconds / (4 * SHARE) / taken)))

    def once(size: int) -> float:
        message(bulk)
        return message(size)

    return once


# --- pairs


def send(pair: Pair, seconds: float) -> Times:
    """Of messages to the receiver, which answers in `receive`: the times of one way, the answer's taken off."""
    receiver = pair[1]

    def message(size: int) -> float:
        _announce(receiver, size)
        payload = torch.zeros(size, dtype=torch.uint8)
        start = time.perf_counter()
        dist.send(payload, receiver)
        _answered(receiver)
        return time.perf_counter() - start

    once = busy(message, seconds)
    back = median(message(1) for _ in range(FEWEST * 3)) / 2
    times = measured(seconds, once)
    _announce(receiver, OVER)
    return {size: max(taken - back, taken / 2) for size, taken in times.items()}


def receive(pair: Pair) -> None:
    sender = pair[0]
    size = torch.zeros(1, dtype=torch.int64)
    while True:
        dist.recv(size, sender)
        if int(size) == OVER:
            return
        dist.send(torch.zeros(1, dtype=torch.uint8), sender)
        dist.recv(torch.empty(int(size), dtype=torch.uint8), sender)
        dist.send(torch.zeros(1, dtype=torch.uint8), sender)


def _announce(receiver: int, size: int) -> None:
    dist.send(torch.tensor([size]), receiver)
    if size != OVER:
        _answered(receiver)


def _answered(receiver: int) -> None:
    dist.recv(torch.empty(1, dtype=torch.uint8), receiver)


# --- all-reduces


def all_reduces(seconds: float) -> Times:
    """Of f32 all-reduces of so many bytes. The slowest worker's times, so all workers have the same and go on alike."""

    def reduction(size: int) -> float:
        buffer = torch.zeros(max(1, size // 4))
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        return _over_all(time.perf_counter() - start, dist.ReduceOp.MAX)

    return measured(seconds, busy(reduction, seconds), _Common())


# --- what a message costs a core


def work(seconds: float) -> Times:
    """Of a core at each end of a message, by the process's own account of its time, the mean over all workers. Everyone
    sends to the next and hears from the one before."""
    spent: dict[int, list[float]] = {}

    def passed_round(size: int) -> float:
        dist.barrier()
        start, began = time.perf_counter(), time.process_time()
        pass_round(size)
        of_core, taken = time.process_time() - began, time.perf_counter() - start
        spent.setdefault(size, []).append(_over_all(of_core, dist.ReduceOp.SUM) / dist.get_world_size() / 2)
        return _over_all(taken, dist.ReduceOp.MAX)

    measured(seconds, busy(passed_round, seconds), _Common())
    return {size: median(of) for size, of in spent.items() if size in SIZES and len(of) >= FEWEST}


def pass_round(size: int) -> None:
    """A message to the next worker, and one from the one before."""
    rank, count = dist.get_rank(), dist.get_world_size()
    received = dist.irecv(torch.empty(size, dtype=torch.uint8), (rank - 1) % count)
    sent = dist.isend(torch.empty(size, dtype=torch.uint8), (rank + 1) % count)
    for under_way in (received, sent):
        assert under_way is not None
        under_way.wait()


def _over_all(value: float, operation: dist.ReduceOp.RedOpType) -> float:
    found = torch.tensor([value], dtype=torch.float64)
    dist.all_reduce(found, op=operation)
    return float(found)


class _Common:
    """A clock that all workers read alike: rank 0's."""

    def __call__(self) -> float:
        now = torch.tensor([time.perf_counter()], dtype=torch.float64)
        dist.broadcast(now, 0)
        return float(now)
