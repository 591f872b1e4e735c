"""How long an iteration takes over a network: what puts a simulation's curves on an axis of time."""

from __future__ import annotations

from collections.abc import Sequence

from relaxc.program import figures
from relaxc.program.agreement import phases_of
from relaxc.program.figures import Sent
from relaxc.program.ir import ASYNC, Body, Program
from relaxc.program.types import Typed
from relaxc.schedule.network import Line, Network
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import NEIGHBOURLY, gathers
from relaxc.wire.selection import assign

HOW = "computation and bytes over the slowest link; coding counts as nothing, and what is late as hidden"


def seconds_of_iteration(
    typed: Typed, parameters: Sequence[Parameter], workers: int, network: Network, computation: float
) -> float:
    """Of the last phase. An exchange that is waited for in its own iteration comes on top of the computation, a late
    one runs beside it, and nobody waits for an asynchronous one."""
    shown, beside = 0.0, 0.0
    for body, elements in _governed(typed.program, parameters):
        facts = typed.facts[typed.program.bodies.index(body)]
        took = _exchange(body, elements, workers, network)
        if facts.asynchronous or facts.staleness == ASYNC:
            continue
        if facts.staleness:
            beside += took
        else:
            shown += took
    return max(computation + shown, beside)


def _governed(program: Program, parameters: Sequence[Parameter]) -> list[tuple[Body, int]]:
    """The bodies with the f32 elements that they govern, or as many as their bytes would be."""
    bodies = assign([body.selector for body in program.bodies], parameters)
    elements = [0] * len(program.bodies)
    for parameter, body in zip(parameters, bodies, strict=True):
        if body is not None:
            elements[body] += parameter.bytes // figures.REAL_BYTES
    return list(zip(program.bodies, elements, strict=True))


def _exchange(body: Body, elements: int, workers: int, network: Network) -> float:
    if not elements or workers == 1:
        return 0.0
    line = slowest(network, workers)
    total = 0.0
    for sent in figures.sent_in(body, phases_of(body.statements)[-1]):
        share = 1.0 if sent.share is None else sent.share
        bytes = figures.sent_bytes(sent, workers, elements) * network.per_machine
        total += share * (line.fixed * _turns(sent, workers) + line.each * bytes)
    return total


def _turns(sent: Sent, workers: int) -> int:
    """Messages that wait for one another."""
    if sent.exchange.kind in NEIGHBOURLY or gathers(sent.exchange.kind, sent.coded, sent.exchange.route):
        return 1
    return 2 * (workers - 1) if sent.codec is None else figures.figured(sent.exchange.route, workers).legs(workers)


def slowest(network: Network, workers: int) -> Line:
    """The link that a megabyte takes longest on."""
    lines = [network.link, *(line for (s, r), line in network.pairs.items() if max(s, r) < workers)]
    return max(lines, key=lambda line: line.at(1e6))
