"""Which workers share a machine: what `hierarchy` without `inner` means where a plan is attached.

Everything behind this reads a manifest in which it is written. Machines are runs of ranks, as torchrun numbers them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from relaxc.errors import ExchangeError
from relaxc.manifest import BodyPlan, ExchangePlan, Manifest, ProgramPlan
from relaxc.topology.kinds import located as located_topology
from relaxc.topology.topology import from_plain, to_plain
from relaxc.wire.routes import located as located_route
from relaxc.wire.routes import route_of

SIZE, LOCAL_RANK = "LOCAL_WORLD_SIZE", "LOCAL_RANK"
"""Set by torchrun."""
ALONE = 1


def on_machines(manifest: Manifest, rank: int, workers: int) -> Manifest:
    """`manifest` with the number of workers of a machine wherever it was left open. Raise ExchangeError (RX0630) where
    `workers` are not whole machines."""
    if _open(manifest):
        manifest = _filled(manifest, _inner(rank, workers))
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
    for body in manifest.bodies:
        if body.gradient is not None:
            yield body.gradient.exchange
        if body.program is not None:
            yield from (transfer.exchange for transfer in body.program.transfers)


def _open(manifest: Manifest) -> bool:
    return _filled(manifest, ALONE) != manifest


def _filled(manifest: Manifest, inner: int) -> Manifest:
    return replace(manifest, bodies=tuple(_body(body, inner) for body in manifest.bodies))


def _body(body: BodyPlan, inner: int) -> BodyPlan:
    gradient, program = body.gradient, body.program
    if gradient is not None:
        gradient = replace(gradient, exchange=_exchange(gradient.exchange, inner))
    return replace(body, gradient=gradient, program=None if program is None else _program(program, inner))


def _program(program: ProgramPlan, inner: int) -> ProgramPlan:
    return replace(
        program,
        transfers=tuple(replace(t, exchange=_exchange(t.exchange, inner)) for t in program.transfers),
        owns=tuple((_topology(topology, inner), block) for topology, block in program.owns),
    )


def _exchange(exchange: ExchangePlan, inner: int) -> ExchangePlan:
    topology = None if exchange.topology is None else _topology(exchange.topology, inner)
    return replace(exchange, route=located_route(exchange.route, inner), topology=topology)


def _topology(plain: Any, inner: int) -> Any:
    found = from_plain(plain)
    made = located_topology(found, inner)
    return plain if made == found else to_plain(made)
