"""How much a worker encodes and decodes in an exchange, counted in the moves of its route."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from relaxc.manifest import ExchangePlan
from relaxc.schedule.neighbours import degrees, is_gathered
from relaxc.topology.topology import from_plain
from relaxc.wire.routes import NEIGHBOURLY, Phase, Run, gather_phases, relay_phases, route_of


@dataclass(frozen=True, slots=True)
class Calls:
    """How many kernels run, and through how many tensors they go together: a chunk is a part of one."""

    calls: int
    share: float


@dataclass(frozen=True, slots=True)
class Work:
    """`encodes` and `decodes` are of codes, `makes` and `takes` of plain numbers."""

    encodes: Calls
    decodes: Calls
    makes: Calls
    takes: Calls


def work_of(exchange: ExchangePlan, workers: int) -> Work:
    """Raise KeyError for a route that is none."""
    if not is_gathered(exchange):
        return _routed_work(exchange.route, workers)
    heard = workers - 1
    if exchange.kind in NEIGHBOURLY:
        heard = degrees(from_plain(exchange.topology), workers)[0]
    return _gathered_work(exchange.kind == "relay", heard, exchange.codec is not None and exchange.codec.guarded)


@cache
def _gathered_work(relays: bool, heard: int, guarded: bool) -> Work:
    peers = range(1, heard + 1)
    return _work(relay_phases(0, peers) if relays else gather_phases(0, peers, peers, guarded), 1)


@cache
def _routed_work(route: str, workers: int) -> Work:
    return _work(route_of(route).phases(0, workers), workers)


def _work(phases: Sequence[Phase], chunks: int) -> Work:
    """Of worker 0, where a tensor is cut into so many chunks."""
    runs = [move for phase in phases for move in phase if isinstance(move, Run)]
    made = [run.output for run in runs if run.output is not None and run.output.what != "trips"]
    taken = [[message for _, message in run.inputs] for run in runs if run.inputs]
    return Work(
        _calls([1 for message in made if not message.exact], chunks),
        _calls([len(inputs) for inputs in taken if not inputs[0].exact], chunks),
        _calls([1 for message in made if message.exact], chunks),
        _calls([len(inputs) for inputs in taken if inputs[0].exact], chunks),
    )


def _calls(inputs: Sequence[int], chunks: int) -> Calls:
    return Calls(len(inputs), sum(inputs) / chunks)
