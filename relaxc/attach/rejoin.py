"""A worker that was lost and is started again: how it finds the run that the others have gone on with.

Attach leaves a note in the store of the processes: under which name the plan's workers keep their own part of it, and
what all of them agreed on there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store  # which it doesn't export to type checkers

from relaxc.attach.groups import Groups, join_group, limit_of, lost
from relaxc.errors import ExchangeError
from relaxc.manifest import Manifest

RUNS = "relaxc/runs"
PREFIXES = ("0/", "default_pg/0/")
"""Where torch.distributed keeps the default group's part of a store that it is given, and of one that it makes."""


@dataclass(frozen=True)
class Rejoin:
    """A run whose workers have attached. `store` is the processes' part of its store."""

    store: Store
    rank: int
    workers: int


def rejoining(store: Store, rank: int, workers: int) -> Rejoin | None:
    """For `plan.attach(..., rejoin=)`: the run that this worker was lost from; None where none has begun, so that this
    is the worker's first start.

    `store` is a client of the store of the run, the same that init_process_group was given. Call it before, and don't
    call init_process_group where it returns something: the others have done that, and would have to once more.
    """
    if not 0 <= rank < workers:
        raise ExchangeError(
            "RX0607", f"rank {rank!r} of {workers!r} workers", "give this worker's rank and their number"
        )
    try:
        for prefix in PREFIXES:
            inner = PrefixStore(prefix, store)
            if inner.check([RUNS]):
                return Rejoin(inner, rank, workers)
    except RuntimeError as error:
        raise lost(rank, error) from error
    return None


def announce(groups: Groups, plan: str, facts: Mapping[str, Any], manifest: Manifest, bodies: Sequence[int]) -> None:
    """By rank 0, once all are there: that a worker which is lost can come back to this run, or why not."""
    if groups.rank or not groups.prefix:
        return
    note = {"prefix": groups.prefix, "facts": dict(facts), "why": why_not(manifest, bodies)}
    shared = dist.distributed_c10d._get_default_store()  # noqa: SLF001 - no public way to it
    shared.set(f"relaxc/run/{plan}", msgspec.json.encode(note).decode())
    shared.set(RUNS, "1")


def find(rejoin: Rejoin, plan: str) -> tuple[str, dict[str, Any]]:
    """The name of this plan's part of the store, and the facts of its workers. Raise ExchangeError (RX0627) where
    nobody can come back to it."""
    key = f"relaxc/run/{plan}"
    try:
        note = msgspec.json.decode(rejoin.store.get(key)) if rejoin.store.check([key]) else None
    except RuntimeError as error:
        raise lost(rejoin.rank, error) from error
    if note is None:
        raise ExchangeError(
            "RX0627", f"rank {rejoin.rank} can't rejoin: nobody in this run has attached this plan",
            "give the plan that the run began with",
        )  # fmt: skip
    if note["why"] is not None:
        raise ExchangeError(
            "RX0627", f"rank {rejoin.rank} can't rejoin: {note['why']}", "restart the run from the last checkpoint"
        )
    return note["prefix"], note["facts"]


def groups_alone(rejoin: Rejoin, prefix: str, timeout: timedelta | float | None, programs: bool) -> Groups:
    """Of this process only, which stand for those that were made before it came."""
    limit, nobody = limit_of(timeout), HashStore()
    made = [join_group(nobody, part, 0, 1, limit) for part in ("exchange", "control", "programs")]
    store = PrefixStore(prefix, rejoin.store)
    where = store, rejoin.rank, rejoin.workers, limit, prefix
    return Groups(made[0], made[2] if programs else None, made[1], *where, rejoins=True)


def why_not(manifest: Manifest, bodies: Sequence[int]) -> str | None:
    """What of a plan keeps a worker from coming back: all exchanges that it has must be mixes that nobody waits for."""
    for body in (manifest.bodies[n] for n in sorted(set(bodies))):
        transfers = body.program.transfers if body.program is not None else ()
        if body.gradient is not None or not all(t.asynchronous for t in transfers):
            return f"`{body.statement}` has exchanges in which all workers take part at the same time"
        if any(t.exchange.kind != "mix" for t in transfers):
            return f"`{body.statement}` has a mean or sum of all, which doesn't outlive the loss of one"
    if not any(manifest.bodies[n].program is not None for n in bodies):
        return "it exchanges nothing"
    return None


def refuse_group(group: dist.ProcessGroup | None, rejoin: Rejoin) -> None:
    if group is not None or (dist.is_available() and dist.is_initialized()):
        raise ExchangeError(
            "RX0607", f"rank {rejoin.rank} rejoins, and has a process group of its own",
            "don't call init_process_group where relaxc.rejoining() returns something",
        )  # fmt: skip
