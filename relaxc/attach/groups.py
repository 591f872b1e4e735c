"""Process groups of a plan's own, so that the user's collectives never come between its messages.

They are built on the store of the user's process group, not by dist.new_group: that one names a group of some ranks after
the number of groups alive in this process, which differs between workers and comes back after a group is destroyed.
"""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from relaxc.errors import ExchangeError

DEFAULT_TIMEOUT = timedelta(minutes=5)
_attached: Counter[str] = Counter()
"""Attaches by the name of the user's group: attach is collective, so all its members count alike."""


@dataclass(frozen=True)
class Groups:
    """`exchange` carries the plan's messages, issued by the queue's thread alone; `control` what Python compares.
    `store` is this attach's own part of the user's store."""

    exchange: dist.ProcessGroup
    control: dist.ProcessGroup
    store: dist.Store
    rank: int
    workers: int
    timeout: timedelta

    def gather(self, value: Any) -> list[Any]:
        """`value` of every worker, in rank order."""
        raw = torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
        sizes = self.gather_tensors(torch.tensor([raw.numel()]))
        padded = torch.zeros(max(int(s) for s in sizes), dtype=torch.uint8)
        padded[: raw.numel()] = raw
        gathered = self.gather_tensors(padded)
        return [pickle.loads(g[: int(s)].numpy().tobytes()) for g, s in zip(gathered, sizes, strict=True)]

    def gather_tensors(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """`tensor` of every worker; shapes and dtypes must be the same."""
        result = [torch.empty_like(tensor) for _ in range(self.workers)]
        self.control.allgather([result], [tensor]).wait()
        return result


def make_groups(group: dist.ProcessGroup | None, timeout: timedelta | float | None) -> Groups:
    """`group` is the workers' (default: all processes); `timeout` in seconds or as a timedelta bounds every wait.

    Raise ExchangeError: RX0600 where torch.distributed is not up or this process is no member, RX0602 where a worker
    does not arrive.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise ExchangeError(
            "RX0600", "torch.distributed is not initialised",
            'call torch.distributed.init_process_group("gloo") before attach, under torchrun',
        )  # fmt: skip
    limit = _limit(timeout)
    users = group if group is not None else dist.group.WORLD
    rank, workers = dist.get_rank(group), dist.get_world_size(group)
    if users is None or rank < 0:
        raise ExchangeError("RX0600", "this process is not in the group", "attach only on the members of `group`")
    _attached[users.group_name] += 1
    name = f"relaxc/{users.group_name}/{_attached[users.group_name]}"
    store = dist.PrefixStore(name, dist.distributed_c10d._get_default_store())
    _meet(store, rank, workers, limit)
    exchange, control = (_make(store, part, rank, workers, limit) for part in ("exchange", "control"))
    return Groups(exchange, control, store, rank, workers, limit)


def _limit(timeout: timedelta | float | None) -> timedelta:
    if timeout is None:
        return DEFAULT_TIMEOUT
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit <= timedelta(0):
        raise ExchangeError("RX0600", f"a timeout of {limit.total_seconds():g} s", "give a positive number of seconds")
    return limit


def _meet(store: dist.Store, rank: int, workers: int, limit: timedelta) -> None:
    """Wait until all are here: connecting would wait as long as the store does, and name nobody."""
    keys = [f"here/{r}" for r in range(workers)]
    try:
        store.set(keys[rank], "1")
        store.wait(keys, limit)
    except RuntimeError as error:
        raise ExchangeError(
            "RX0602", f"rank {rank}: {_missing(store, keys)} attach within {limit.total_seconds():g} s",
            "see that every worker starts and calls attach, or raise `timeout`",
        ) from error  # fmt: skip


def _missing(store: dist.Store, keys: list[str]) -> str:
    try:
        absent = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
    except RuntimeError:
        return "the host of the store (rank 0's) is gone, so nobody can"
    return f"rank {', '.join(absent)} did not reach"


def _make(store: dist.Store, part: str, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
    inner = dist.PrefixStore(part, store)
    group = dist.ProcessGroup(inner, rank, workers)
    backend = dist.ProcessGroupGloo(inner, rank, workers, limit)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return group
