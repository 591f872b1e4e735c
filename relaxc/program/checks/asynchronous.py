"""Does what lands asynchronously depend on nothing but its own launch, and nothing else on it?

An async block launches where nothing of it is under way, each worker by itself. So what it launches is read by that
block alone, waits for nothing that lands with it, and what the block does is a worker's own affair.
"""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.language.report import Report
from relaxc.program.checks.judged import Judged, place, values
from relaxc.program.ir import (
    After,
    Assign,
    Every,
    Exchange,
    Expression,
    Let,
    Own,
    Phase,
    Read,
    Reduce,
    Statement,
    Step,
    blocks,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.launched import Launched, asyncs, launched_of, outside_exchanges, read_of_the_launch
from relaxc.topology.kinds import changes, directed, inner, met
from relaxc.topology.topology import Topology

BESIDE = "put its `let` directly above the `after async`, and read it in there alone"


def check_asynchronous(judged: Judged, report: Report) -> None:
    launched = launched_of(judged.body.statements)
    for after in asyncs(judged.body.statements):
        _its_own(after, report)
        _sends(judged, after, report)
        _launch(judged, after, launched, report)
    for statement in judged.statements:
        for value in values(statement):
            _chained(value, launched, report)
            _pairs(value, launched, report)
    _read_elsewhere(judged, launched, report)


# --- the block


def _its_own(after: After, report: Report) -> None:
    for statement in flattened(after.body):
        match statement:
            case Step():
                report.error("RX0353", "a step in an asynchronous block", place(statement),
                             "how often it runs is not known", "step outside, in every iteration")  # fmt: skip
            case Every() | Phase():
                report.error("RX0353", "a block in an asynchronous block", place(statement),
                             "how often it runs differs between workers",
                             "put the `after async` into the block")  # fmt: skip
            case Assign(name="grad"):
                report.error("RX0352", "a gradient that lands asynchronously", place(statement),
                             "those taken meanwhile would be lost",
                             "delay it by a number of iterations, or send weights")  # fmt: skip
        for value in values(statement):
            for e in within(value):
                if isinstance(e, Exchange):
                    report.error("RX0351", "an exchange in an asynchronous block", place(e),
                                 "others would have to wait for its landing", "exchange before the block")  # fmt: skip


# --- the launch


def _sends(judged: Judged, after: After, report: Report) -> None:
    inside = (e for s in flattened(after.body) for value in values(s) for e in within(value))
    if not any(isinstance(e, Exchange) for e in (*read_of_the_launch(after, judged.lets), *inside)):
        report.error("RX0350", "an `after async` that nothing arrives for", place(after), "it reads no exchange",
                     "read the `let` of a mean or a mix in it, or run it in every iteration")  # fmt: skip


def _launch(judged: Judged, after: After, launched: Launched, report: Report) -> None:
    around = next((s for s in _around(judged.body.statements) if after in s), ())
    here = {s.name for s in around[: around.index(after)] if isinstance(s, Let)} if around else set()
    for let in judged.lets.values():
        if launched.awaited.get(let.name, launched.coded.get(let.name)) != after.block:
            continue
        if let.name not in here:
            report.error("RX0350", f"`{let.name}` is made in another block than the `after async` that reads it",
                         place(let), "it is launched where nothing is under way", BESIDE)  # fmt: skip
    for e in read_of_the_launch(after, judged.lets):
        match e:
            case Reduce() if any(_awaited(part, launched) for part in outside_exchanges(e.argument)):
                report.error("RX0351", "a norm of what has not arrived", place(e), "", "take it inside of the block")
            case Own(topology=topology) if changes(topology):
                report.error("RX0351", f"own() of {topology}, which changes, at the launch", place(e), "",
                             "read it inside of the block")  # fmt: skip
    for name in sorted(_taken_out(judged, after, around, launched)):
        report.warn("RX0355", f"`{name}` is given a new value whether or not anything is launched", place(after),
                    "what was in it is lost where nothing is",
                    "change it in the block, by what was sent: base += moved")  # fmt: skip


def _around(statements: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    yield statements
    for statement in statements:
        yield from _around(blocks(statement))


def _awaited(e: Expression, launched: Launched) -> bool:
    match e:
        case Exchange(place=place):
            return place in launched.exchanges
        case Read(name=name):
            return name in launched.awaited
    return False


def _taken_out(judged: Judged, after: After, around: tuple[Statement, ...], launched: Launched) -> set[str]:
    """States that are sent and then set to weights, as progress since the last launch is."""
    sent = {
        name
        for e in judged.exchanges()
        if launched.exchanges.get(e.place) == after.block
        for name in judged.sources(e.value)
    }
    reset = {s.name for s in around if isinstance(s, Assign) and isinstance(s.value, Read) and s.value.name == "weight"}
    return sent & reset


def _chained(value: Expression, launched: Launched, report: Report) -> None:
    for e in within(value):
        if not isinstance(e, Exchange) or not _is_sent(e, launched):
            continue
        if e.kind == "relay":
            report.error("RX0351", "a relay that lands asynchronously", place(e), "neighbours pass on what they hear",
                         "let it land in its own iteration")  # fmt: skip
        for part in within(e.value):
            if isinstance(part, Exchange) or (isinstance(part, Read) and part.name in launched.awaited):
                report.error("RX0351", "an exchange of what has not arrived", place(e), "",
                             "exchange it in an iteration of its own")  # fmt: skip
                return


def _is_sent(e: Exchange, launched: Launched) -> bool:
    awaits = any(isinstance(p, Read) and p.name in launched.awaited for p in within(e.value))
    return e.place in launched.exchanges or awaits


def _read_elsewhere(judged: Judged, launched: Launched, report: Report) -> None:
    own = {id(s): after.block for after in asyncs(judged.body.statements) for s in flattened(after.body)}
    told: set[str] = set()
    for statement in judged.statements:
        mine = own.get(id(statement))
        if isinstance(statement, Let):
            mine = launched.awaited.get(statement.name, launched.coded.get(statement.name, mine))
        for name in sorted({e.name for value in values(statement) for e in within(value) if isinstance(e, Read)}):
            block = launched.awaited.get(name, launched.coded.get(name))
            if block is not None and block != mine and name not in told:
                told.add(name)
                report.error("RX0350", f"`{name}` is read outside of the `after async` that it is launched for",
                             place(statement), "it is made only where nothing is under way", BESIDE)  # fmt: skip


# --- partners that find each other


def _pairs(value: Expression, launched: Launched, report: Report) -> None:
    for e in within(value):
        if not isinstance(e, Exchange | Own) or e.topology is None or not met(e.topology):
            continue
        if isinstance(e, Own):
            report.error("RX0354", "own() of ready_pairs", place(e), "1/2 where one has met another", "write 0.5")
        elif (wrong := _wrong(e.topology)) is not None:
            report.error("RX0354", f"no graph of ready_pairs: {e.topology}", place(e), wrong,
                         "take one such as complete, ring or torus: ready_pairs(complete)")  # fmt: skip
        elif e.place not in launched.exchanges:
            report.error("RX0354", "ready_pairs in an exchange that is waited for", place(e),
                         "partners find each other while training goes on",
                         "land it by delay(.., async), or take random_pairs")  # fmt: skip


def _wrong(topology: Topology) -> str | None:
    if topology.name != "ready_pairs":
        return "pairs that meet have no other weights than 1/2"
    (graph,) = inner(topology)
    if met(graph) or changes(graph):
        return "its neighbours must stay the same"
    return "its links must go both ways" if directed(graph) else None
