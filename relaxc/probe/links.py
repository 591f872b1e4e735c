"""Messages between pairs, and dense all-reduces, timed over sizes. Times are medians of repetitions, in each of which
all sizes come once, so that a passing disturbance hits all of them alike."""

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
OVER = 0

Times = dict[int, float]
"""Seconds by bytes."""


def measured(seconds: float, once: Callable[[int], float]) -> Times:
    """Medians of `once(size)` over repetitions that take `seconds`, about."""
    found: dict[int, list[float]] = {}
    sizes: list[int] = []
    spent = 0.0
    for size in _ascending(found, seconds):
        found[size] = [once(size)]
        sizes.append(size)
        spent += found[size][0]
    for repetition in range(1, MOST):
        if repetition >= FEWEST and spent * (repetition + 1) / repetition > seconds:
            break
        for size in sizes:
            found[size].append(once(size))
            spent += found[size][-1]
    return {size: median(times) for size, times in found.items()}


def _ascending(found: Mapping[int, list[float]], seconds: float) -> Iterator[int]:
    for size in SIZES:
        yield size
        if found[size][0] > seconds / SHARE:
            return


# --- pairs


def send(pair: Pair, seconds: float) -> Times:
    """Of messages to the receiver, which answers in `receive`: the times of one way, the answer's taken off."""
    receiver = pair[1]

    def once(size: int) -> float:
        _announce(receiver, size)
        message = torch.zeros(size, dtype=torch.uint8)
        start = time.perf_counter()
        dist.send(message, receiver)
        _answered(receiver)
        return time.perf_counter() - start

    once(SIZES[0])  # connections are made by the first message
    back = median(once(1) for _ in range(FEWEST * 3)) / 2
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

    def once(size: int) -> float:
        buffer = torch.zeros(size // 4)
        dist.barrier()
        start = time.perf_counter()
        dist.all_reduce(buffer)
        taken = torch.tensor([time.perf_counter() - start], dtype=torch.float64)
        dist.all_reduce(taken, op=dist.ReduceOp.MAX)
        return float(taken)

    once(SIZES[0])
    return measured(seconds, once)
