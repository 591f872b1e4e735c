"""Who keeps what the codes of an exchange lose, element by element, where that is not simply everyone."""

from __future__ import annotations

from dataclasses import dataclass

from relaxc.manifest import ExchangePlan
from relaxc.schedule.routed import layout_of
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import Run, gathers, route_of


@dataclass(frozen=True, slots=True)
class Part:
    """Elements [first, end) of a parameter that a worker keeps losses of, as `keepers` workers do."""

    first: int
    end: int
    keepers: int


def kept_parts(exchange: ExchangePlan | None, parameter: Parameter, workers: int, rank: int) -> list[Part] | None:
    """Of a worker's own losses: its share of those of everyone together. None where each worker keeps its own, of all
    elements, or nobody any."""
    if exchange is None or exchange.codec is None or gathers(exchange.kind, exchange.coded, exchange.route):
        return None
    keepers = _keepers(exchange, workers)
    if all(len(found) in (0, workers) for found in keepers):
        return None
    owned = shares(parameter.number, parameter.elements, layout_of(exchange.codec), workers)
    return [Part(first, end, len(found)) for (first, end), found in zip(owned, keepers, strict=True) if rank in found]


def _keepers(exchange: ExchangePlan, workers: int) -> list[set[int]]:
    """By chunk."""
    route = route_of(exchange.route)
    keeping = {k.name for k in route.kernels(exchange.feedback, exchange.kind) if k.residual and not k.owner}
    found: list[set[int]] = [set() for _ in range(workers)]
    for rank in range(workers):
        for move in (move for phase in route.phases(rank, workers) for move in phase):
            if isinstance(move, Run) and move.kernel in keeping:
                found[move.chunk].add(rank)
    return found
