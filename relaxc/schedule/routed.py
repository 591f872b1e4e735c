"""What the route of an exchange makes of a bucket: its pieces, and the phases of each."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from relaxc.manifest import CodecPlan, ExchangePlan
from relaxc.schedule.machines import located
from relaxc.schedule.pieces import Chunk, cut_apart, cut_pieces, cut_whole
from relaxc.topology.kinds import most_heard
from relaxc.topology.topology import from_plain
from relaxc.wire.layout import EXACT, Field, Layout, WireType
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import (
    HIERARCHY,
    NEIGHBOURLY,
    ROUTES,
    Phase,
    everyone,
    gather_legs,
    gather_phases,
    gathers,
    relay_phases,
    route_of,
)

FEW = 2
"""Messages of so many meet no incast at one that hears them."""


def layout_of(codec: CodecPlan) -> Layout:
    fields = tuple(Field(f.name, WireType(f.kind, f.bits, f.part), f.per_element) for f in codec.fields)
    return Layout(codec.block, fields, codec.unit)


def phases_of(
    exchange: ExchangePlan, workers: int, rank: int, targets: Sequence[int] = (), sources: Sequence[int] = ()
) -> tuple[tuple[Phase, ...], int]:
    """The phases of a piece, and how many tags it uses. `targets` and `sources` are of neighbours."""
    if exchange.kind == "relay":
        return relay_phases(rank, [p for p in sources if p != rank]), 1
    if not gathers(exchange.kind, exchange.coded, exchange.route):
        route = route_of(exchange.route)
        return route.phases(rank, workers), route.legs(workers)
    if exchange.kind not in NEIGHBOURLY:
        targets = sources = everyone(rank, workers)
    guarded = exchange.codec is not None and exchange.codec.guarded
    heard, told = [p for p in sources if p != rank], [p for p in targets if p != rank]
    return gather_phases(rank, heard, told, guarded), gather_legs(guarded)


def roundings_of(exchange: ExchangePlan, workers: int) -> int:
    """How often a value is encoded on its way: never, where its codec loses nothing."""
    if exchange.codec is None or layout_of(exchange.codec) == EXACT:
        return 0
    return route_of(exchange.route).roundings(workers)


def other_routes(exchange: ExchangePlan, workers: int, inner: int) -> list[str]:
    """Those of a mean or sum that round no more often; a hierarchy only where there are several machines, with `inner`
    workers each."""
    mine = located(exchange, inner)
    names = [name for name in ROUTES if name != HIERARCHY or 1 < inner < workers]
    ways = {name: located(replace(exchange, route=name), inner) for name in names}
    most = roundings_of(mine, workers)
    return [name for name, way in ways.items() if way.route != mine.route and roundings_of(way, workers) <= most]


def heard_at_most(exchange: ExchangePlan, workers: int) -> int:
    """From how many others a worker hears at once, where codes are gathered. The same for all workers and rounds."""
    if exchange.kind not in NEIGHBOURLY:
        return workers - 1
    return most_heard(from_plain(exchange.topology), workers)


def cut_for(
    exchange: ExchangePlan, members: Sequence[Parameter], workers: int, piece_bytes: int, few_piece_bytes: int = 0
) -> tuple[tuple[Chunk, ...], ...]:
    """The pieces of an exchange with a codec, each as its chunks."""
    assert exchange.codec is not None
    layout = layout_of(exchange.codec)
    if exchange.kind == "relay" or gathers(exchange.kind, exchange.coded, exchange.route):
        few = few_piece_bytes > piece_bytes and heard_at_most(exchange, workers) <= FEW
        if few and layout == EXACT:
            return cut_apart(members, layout, few_piece_bytes, piece_bytes)
        return cut_whole(members, layout, few_piece_bytes if few else piece_bytes)
    return cut_pieces(members, layout, workers, piece_bytes)
