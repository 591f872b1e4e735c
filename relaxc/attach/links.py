"""The way between a worker that comes back and one that has lived on: a process group of the two for each lane, and
what they tell each other in the store.

A restarted process can't take part in the groups that were made at attach. Both say that they are ready before either
connects, so that connecting takes no time, and nobody waits in it for one that is lost.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore  # its own, which it doesn't export to type checkers

from relaxc.attach.groups import join_group

LOOK_EVERY = 0.005
STATE_TAG = 1


@dataclass(frozen=True)
class Pair:
    """`guest` is this life of the one that comes back, `host` that of the other. `store` is a client of its own: its
    calls may wait."""

    store: Any
    guest: tuple[int, int]
    host: tuple[int, int]

    @property
    def name(self) -> str:
        return "{}.{}-{}.{}".format(*self.guest, *self.host)

    def say(self, what: str, value: object = 1) -> None:
        self.store.set(f"{what}/{self.name}", msgspec.json.encode(value).decode())

    def said(self, what: str) -> Any:
        """None where it was not said yet."""
        key = f"{what}/{self.name}"
        return msgspec.json.decode(self.store.get(key)) if self.store.check([key]) else None

    def connect(self, rank: int, lanes: int, limit: timedelta) -> list[dist.ProcessGroup]:
        store, index = PrefixStore(f"pair/{self.name}", self.store), self.index(rank)
        return [join_group(store, str(n), index, 2, limit) for n in range(lanes)]

    def index(self, rank: int) -> int:
        """In the groups of the two."""
        return int(rank == max(self.guest[0], self.host[0]))


def knock(store: Any, rank: int, life: int) -> None:
    store.set(f"knock/{rank}", str(life))


def knocks(store: Any, rank: int) -> int:
    """The newest life of a worker that asked to be let in; 0: none."""
    return int(store.get(f"knock/{rank}")) if store.check([f"knock/{rank}"]) else 0


def wait_on(store: Any, rank: int, life: int) -> None:
    """Say that it still waits to be let in."""
    store.add(f"waits/{rank}.{life}", 1)


def waits(store: Any, rank: int, life: int) -> int:
    return int(store.add(f"waits/{rank}.{life}", 0))


def launches_of(store: Any, rank: int, life: int) -> Mapping[str, int]:
    """What one that comes back begins with, by place."""
    return msgspec.json.decode(store.get(f"launches/{rank}.{life}"), type=dict[str, int])


def tell_launches(store: Any, rank: int, life: int, launches: Mapping[str, int]) -> None:
    store.set(f"launches/{rank}.{life}", msgspec.json.encode(dict(launches)).decode())


def firsts(mine: Mapping[str, int], theirs: Mapping[str, int]) -> dict[str, int]:
    """By place, the first launch in which the two meet: neither has launched it yet."""
    return {place: max(number, theirs[place]) for place, number in mine.items()}


def send_state(group: dist.ProcessGroup, index: int, state: bytes) -> None:
    group.send([torch.frombuffer(bytearray(state), dtype=torch.uint8)], index, STATE_TAG).wait()


def receive_state(group: dist.ProcessGroup, index: int, size: int, limit: timedelta) -> bytes:
    tensor = torch.empty(size, dtype=torch.uint8)
    group.recv([tensor], index, STATE_TAG).wait(limit)
    return tensor.numpy().tobytes()


def until(found: Callable[[], Any], seconds: float, stopped: Callable[[], bool] = lambda: False) -> Any:
    """What `found` returns once it is not None; None where that takes too long."""
    end = time.monotonic() + seconds
    while (value := found()) is None and time.monotonic() < end and not stopped():
        time.sleep(LOOK_EVERY)
    return value
