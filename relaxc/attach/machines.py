"""Which workers share a machine: what `hierarchy` without `inner` means where a plan is attached.

Everything behind this reads a manifest in which it is written. Machines are runs of ranks, as torchrun numbers them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from relaxc.errors import ExchangeError
from relaxc.manifest import ExchangePlan, Manifest
from relaxc.schedule.machines import on_machines_of
from relaxc.wire.routes import route_of

SIZE, LOCAL_RANK = "LOCAL_WORLD_SIZE", "LOCAL_RANK"
"""Set by torchrun."""
ALONE = 1


def on_machines(manifest: Manifest, rank: int, workers: int) -> Manifest:
    """`manifest` with the number of workers of a machine wherever it was left open. Raise ExchangeError (RX0630) where
    `workers` are not whole machines."""
    if _open(manifest):
        manifest = on_machines_of(manifest, _inner(rank, workers))
    for exchange in _exchanges(manifest):
        why = route_of(exchange.route).refusal(workers) if exchange.route else None
        if why is not None:
            raise ExchangeError("RX0630", why, "start as many workers on each machine, or write hierarchy(inner = n)")
    return manifest


def doubts(manifest: Manifest) -> list[str]:
    """What a user should hear of `manifest`, as it was compiled."""
    if not _open(manifest) or SIZE in os.environ:
        return []
    return [f"{SIZE} is not set, so each worker counts as a machine: use torchrun, or write hierarchy(inner = n)"]


def inners(manifest: Manifest) -> list[int]:
    """The workers of a machine in each hierarchy of a mean or sum."""
    routes = [route_of(e.route) for e in _exchanges(manifest) if e.route]
    return [route.inner for route in routes if route.name == "hierarchy"]


def _inner(rank: int, workers: int) -> int:
    if SIZE not in os.environ:
        return ALONE
    written = os.environ[SIZE]
    if not written.isdigit() or int(written) < 1:
        raise ExchangeError("RX0630", f"{SIZE} is {written!r}", "it counts the workers of this machine: use torchrun")
    inner = int(written)
    local = os.environ.get(LOCAL_RANK, str(rank % inner))
    if workers % inner == 0 and local != str(rank % inner):
        raise ExchangeError(
            "RX0630", f"rank {rank} is number {local} on its machine, and hierarchy takes it for number {rank % inner}",
            f"number the workers machine by machine, {inner} to each, or write hierarchy(inner = n)",
        )  # fmt: skip
    return inner


def _exchanges(manifest: Manifest) -> Iterator[ExchangePlan]:
    return (exchange for body in manifest.bodies for exchange in body.exchanges)


def _open(manifest: Manifest) -> bool:
    return on_machines_of(manifest, ALONE) != manifest
