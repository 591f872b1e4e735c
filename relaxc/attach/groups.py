"""Process groups of a plan's own, so that the user's collectives never come between its messages.

They are built on the store of the user's process group, not by dist.new_group: that one names a group of some ranks
after the number of groups alive in this process, which differs between workers and repeats itself.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # its own, which it doesn't export to type checkers

from relaxc.errors import ExchangeError

DEFAULT_TIMEOUT = timedelta(minutes=5)
GIVEN_UP = "given up"
"""The key of workers that waited for the others as long as they were told to."""
LOOK_EVERY = 0.02
PATIENCE = 4
"""A group of a lane, or of NCCL, waits this many times as long as we do: a backend's own timeout would close its
connections to all workers, not only to the lost one, and NCCL's watchdog end the process."""
_attached: WeakKeyDictionary[Store, Counter[str]] = WeakKeyDictionary()
"""Attaches by store and the name of the user's group: attach is collective, so all its members count alike. By store,
since a process that leaves the world and joins another has counted for itself."""


_alive: WeakSet[dist.ProcessGroup] = WeakSet()
_kept_in_child: list[dist.ProcessGroup] = []
os.register_at_fork(after_in_child=lambda: _kept_in_child.extend(_alive))
"""A forked child has a group but not its threads, for which its destructor would wait: it may never run there."""


@dataclass(frozen=True)
class Groups:
    """`exchange` carries the messages of gradients and `programs` those of programs (None where the plan has none),
    each issued by one queue's thread alone; `control` what Python compares. `store` is this attach's own part of the
    user's store."""

    exchange: dist.ProcessGroup
    programs: dist.ProcessGroup | None
    control: dist.ProcessGroup
    store: Store
    rank: int
    workers: int
    timeout: timedelta
    prefix: str = ""
    """Of `store`, within the processes' part of it; none where the workers are not all processes."""
    rejoins: bool = False
    """Whether this process comes to a run whose groups were made without it: then these are of itself alone."""

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


def make_groups(group: dist.ProcessGroup | None, timeout: timedelta | float | None, programs: bool = False) -> Groups:
    """`group` is the workers' (default: all processes); `timeout` in seconds or as a timedelta bounds every wait.
    `programs` tells whether the plan has some.

    Raise ExchangeError: RX0600 where torch.distributed is not up or this process is no member, RX0602 where a worker
    does not arrive.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise ExchangeError(
            "RX0600", "torch.distributed is not initialised",
            'call torch.distributed.init_process_group("gloo") before attach, under torchrun',
        )  # fmt: skip
    limit = limit_of(timeout)
    users = group if group is not None else dist.group.WORLD
    rank, workers = dist.get_rank(group), dist.get_world_size(group)
    if users is None or rank < 0:
        raise ExchangeError("RX0600", "this process is not in the group", "attach only on the members of `group`")
    shared = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way to it
    counted = _attached.setdefault(shared, Counter())
    counted[users.group_name] += 1
    # torchrun's agent keeps its store when it restarts the workers
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    prefix = f"relaxc/{attempt}/{users.group_name}/{counted[users.group_name]}"
    store = PrefixStore(prefix, shared)
    _meet(store, rank, workers, limit)
    try:
        exchange, control = (_make(store, part, rank, workers, limit) for part in ("exchange", "control"))
        of_programs = _make(store, "programs", rank, workers, limit) if programs else None
    except RuntimeError as error:
        raise lost(rank, error) from error
    return Groups(exchange, of_programs, control, store, rank, workers, limit, prefix if group is None else "")


def limit_of(timeout: timedelta | float | None) -> timedelta:
    if timeout is None:
        return DEFAULT_TIMEOUT
    limit = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    if limit <= timedelta(0):
        raise ExchangeError("RX0600", f"a timeout of {limit.total_seconds():g} s", "give a positive number of seconds")
    return limit


def _meet(store: Store, rank: int, workers: int, limit: timedelta) -> None:
    """Wait until all are here: connecting would wait as long as the store does, and name nobody."""
    absent, given_up, end = list(range(workers)), False, time.monotonic() + limit.total_seconds()
    try:
        store.set(f"here/{rank}", "1")
        while absent and not given_up and time.monotonic() < end:
            absent = [r for r in absent if not store.check([f"here/{r}"])]
            given_up = store.check([GIVEN_UP])
            time.sleep(LOOK_EVERY if absent else 0)  # rather than store.wait, which Ctrl-C doesn't end
        if absent:
            store.set(GIVEN_UP, "1")
    except RuntimeError as error:
        raise lost(rank, error) from error
    if absent or given_up:
        named = f"rank {', '.join(map(str, absent))} did not call attach"
        who = named if absent else "the others called attach and gave up"
        raise ExchangeError(
            "RX0602", f"rank {rank}: {who} within {limit.total_seconds():g} s",
            "see that every worker starts and calls attach, or raise `timeout`",
        )  # fmt: skip


def lost(rank: int, error: Exception) -> ExchangeError:
    reason = (str(error).strip().splitlines() or ["no details"])[0][:160]
    what = f"rank {rank}: a worker or the store was lost during attach ({reason})"
    return ExchangeError("RX0602", what, "restart the run")


def join_group(store: Store, part: str, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
    """One more group on this attach's part of the store; all its members call this in the same order."""
    try:
        return _make(store, part, rank, workers, limit)
    except RuntimeError as error:
        raise lost(rank, error) from error


def _make(store: Store, part: str, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
    inner = PrefixStore(part, store)
    group = dist.ProcessGroup(inner, rank, workers)
    backend = dist.ProcessGroupGloo(inner, rank, workers, limit)
    group._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)  # noqa: SLF001 - as new_group does
    _alive.add(group)
    return group
