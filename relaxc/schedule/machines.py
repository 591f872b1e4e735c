"""A plan with the number of workers of a machine wherever a hierarchy leaves it open."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from relaxc.manifest import BodyPlan, ExchangePlan, Manifest, ProgramPlan
from relaxc.topology.kinds import located as located_topology
from relaxc.topology.topology import from_plain, to_plain
from relaxc.wire.routes import located as located_route


def on_machines_of(manifest: Manifest, inner: int) -> Manifest:
    """With `inner` workers on each."""
    return replace(manifest, bodies=tuple(_body(body, inner) for body in manifest.bodies))


def _body(body: BodyPlan, inner: int) -> BodyPlan:
    gradient, program = body.gradient, body.program
    if gradient is not None:
        gradient = replace(gradient, exchange=located(gradient.exchange, inner))
    return replace(body, gradient=gradient, program=None if program is None else _program(program, inner))


def _program(program: ProgramPlan, inner: int) -> ProgramPlan:
    return replace(
        program,
        transfers=tuple(replace(t, exchange=located(t.exchange, inner)) for t in program.transfers),
        owns=tuple((_topology(topology, inner), block) for topology, block in program.owns),
    )


def located(exchange: ExchangePlan, inner: int) -> ExchangePlan:
    topology = None if exchange.topology is None else _topology(exchange.topology, inner)
    return replace(exchange, route=located_route(exchange.route, inner), topology=topology)


def _topology(plain: Any, inner: int) -> Any:
    found = from_plain(plain)
    made = located_topology(found, inner)
    return plain if made == found else to_plain(made)
