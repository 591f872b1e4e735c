"""NCCL for what is on a GPU: groups over which messages go from device to device, in groups of messages whose order is
the same on all workers. What the host keeps (the census) and what may be dropped (asynchronous exchanges) goes over
Gloo, and so does everything where this can't be.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # its own, which it doesn't export to type checkers

from relaxc.attach.groups import PATIENCE, Groups, lost
from relaxc.manifest import ExchangePlan, Manifest

LOOK_EVERY = 0.002
"""Seconds."""
Make = Callable[[Store, int, int, timedelta], dist.ProcessGroup]

stand_in: Make | None = None
"""None but in tests: makes the groups of every attach, of the kind that NCCL's are, for tensors of the host."""


@dataclass(frozen=True)
class Channels:
    """The runtime's Channel of each queue that all workers keep in step."""

    exchange: Any
    programs: Any


def by_host(runtime: ModuleType, groups: Groups) -> Channels:
    return Channels(runtime.Channel(groups.exchange), runtime.Channel(groups.programs))


def over_nccl(manifest: Manifest, users: dist.ProcessGroup | None, device: torch.device) -> bool:
    """Whether messages go over NCCL: where the user's own go, if all of the plan's can."""
    exchanges = [*_in_gradients(manifest), *_in_programs(manifest)]
    if not exchanges or any(map(_answers, exchanges)):
        return False
    if stand_in is not None:
        return True
    return device.type == "cuda" and dist.is_nccl_available() and _backend(users, device) == "nccl"


def _in_gradients(manifest: Manifest) -> list[ExchangePlan]:
    return [body.gradient.exchange for body in manifest.bodies if body.gradient is not None]


def _in_programs(manifest: Manifest) -> list[ExchangePlan]:
    """Those that all workers keep in step."""
    programs = [body.program for body in manifest.bodies if body.program is not None]
    return [t.exchange for p in programs for t in p.transfers if not t.asynchronous]


def _answers(exchange: ExchangePlan) -> bool:
    """Whether what is sent depends on what has arrived: the host would have to read it before it could send."""
    return exchange.codec is not None and exchange.codec.guarded


def _backend(users: dist.ProcessGroup | None, device: torch.device) -> str:
    group = users if users is not None else dist.group.WORLD
    assert group is not None
    try:
        return str(group._get_backend(device).name()).lower()  # noqa: SLF001 - get_backend names that of one device type
    except RuntimeError:
        return ""


def by_nccl(runtime: ModuleType, manifest: Manifest, groups: Groups, device: torch.device) -> Channels:
    """Collective. A group is first used here, by all workers, as NCCL wants it; a queue that exchanges nothing in step
    has none.

    Raise ExchangeError (RX0602) where a worker is lost meanwhile.
    """
    used = {"exchange": _in_gradients(manifest), "programs": _in_programs(manifest)}
    try:
        exchange, programs = (_channel(runtime, part, groups, device, bool(of)) for part, of in used.items())
    except RuntimeError as error:
        raise lost(groups.rank, error) from error
    return Channels(exchange, programs)


def _channel(runtime: ModuleType, part: str, groups: Groups, device: torch.device, used: bool) -> Any:
    tagged: dist.ProcessGroup | None = getattr(groups, part)
    if tagged is None:
        return runtime.Channel()
    if not used:
        return runtime.Channel(tagged)
    make = stand_in or _nccl
    made = make(PrefixStore(f"ordered/{part}", groups.store), groups.rank, groups.workers, PATIENCE * groups.timeout)
    first = torch.ones(1, device=device)
    _wait(made.allreduce([first]), groups.timeout)
    if first.item() != groups.workers:
        raise RuntimeError(f"a sum of ones over {groups.workers} workers is {first.item():g}")
    return runtime.Channel(tagged, made, groups.timeout.total_seconds())


def _wait(work: Any, limit: timedelta) -> None:
    """On the host: on a device, waiting for the work itself would have no end before the watchdog's."""
    end = time.monotonic() + limit.total_seconds()
    while not work.is_completed():
        if time.monotonic() > end:
            raise RuntimeError(f"no sum over all workers within {limit.total_seconds():g} s")
        time.sleep(LOOK_EVERY)
    work.wait()


def _nccl(store: Store, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
    """`limit` is when NCCL's watchdog ends the process: later than relaxc says what was lost."""
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options._timeout = limit  # noqa: SLF001 - as new_group does
    group = dist.ProcessGroup(store, rank, workers)
    backend = dist.ProcessGroupNCCL(store, rank, workers, options)
    group._register_backend(torch.device("cuda"), dist.ProcessGroup.BackendType.NCCL, backend)  # noqa: SLF001
    return group
