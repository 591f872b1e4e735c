"""What every program must keep, checked after each pass. A failure is a bug of relaxc, never the user's."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Carried,
    Constant,
    Dither,
    Expression,
    Let,
    Mean,
    Program,
    Read,
    Reduce,
    Statement,
    Step,
    exchanges,
)  # fmt: skip
from relaxc.wire.routes import ROUTES, Kernel, Message, Phase, Receive, Route, Run, Send

GIVEN = frozenset({"grad", "weight", "lr", "t", "workers", "rank"})
WORKERS_TRIED = range(1, 9)


class VerifyError(AssertionError):
    """A pass broke the program."""


def verify(program: Program) -> Program:
    """Return `program`, or raise VerifyError."""
    places: list[int] = []
    for body in program.bodies:
        _names(body)
        _steps(body)
        for exchange in exchanges(body.statements):
            places.append(exchange.place)
            if isinstance(exchange, Carried):
                verify_route(ROUTES[exchange.route], exchange.feedback, exchange.kernels)
    _require(len(set(places)) == len(places), "two exchanges share a place")
    _require(all(place % 2 == 0 for place in places), "a place overlaps a re-encoding's")
    return program


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise VerifyError(what)


def _names(body: Body) -> None:
    known = set(GIVEN)

    def visit(statements: tuple[Statement, ...]) -> None:
        for statement in statements:
            match statement:
                case Let(name=name, value=value):
                    _require(_reads(value) <= known, f"let {name} reads an unknown name")
                    _require(name not in known, f"let {name} is a second one")
                    known.add(name)
                case Assign(name=name, value=value):
                    _require(name in known, f"assignment to unknown {name}")
                    _require(_reads(value) <= known, f"assignment to {name} reads an unknown name")
                case After(delay=delay, body=inner):
                    _require(delay >= 1, "an `after` of less than one iteration")
                    visit(inner)

    visit(body.statements)


def _steps(body: Body) -> None:
    _require(sum(isinstance(s, Step) for s in body.statements) <= 1, "two steps")


def _reads(e: Expression) -> set[str]:
    match e:
        case Read(name=name):
            return {name}
        case Constant():
            return set()
        case Apply(arguments=arguments):
            return set().union(*(_reads(a) for a in arguments))
        case Reduce(argument=argument) | Dither(argument=argument):
            return _reads(argument)
        case Mean(value=value) | Carried(value=value):
            return _reads(value)


# --- a route, on symbols


@dataclass(frozen=True, slots=True)
class Symbol:
    """A code as the sum of what went into it: who encoded it, contributions by worker, and how often it was encoded.
    Codes of different origin differ in their bits, whatever they hold."""

    origin: tuple[int, Message]
    contributions: tuple[int, ...]
    roundings: int
    averaged: bool


@dataclass
class _Worker:
    rank: int
    phases: tuple[Phase, ...]
    held: dict[tuple[int, Message], Symbol] = field(default_factory=dict)
    results: dict[int, Symbol] = field(default_factory=dict)
    made: set[tuple[bool, int]] = field(default_factory=set)
    """(as owner, chunk) of what it has encoded: the coordinates of a dither key."""


def verify_route(route: Route, feedback: str, kernels: tuple[Kernel, ...]) -> None:
    """For several worker counts: every contribution arrives exactly once at everyone, divided once; all workers hold
    the same bits; sends and receives pair up; roundings are as stated; what is lost is kept where `feedback` says."""
    for workers in WORKERS_TRIED:
        _verify_for(route, feedback, {k.name: k for k in kernels}, workers)


def _verify_for(route: Route, feedback: str, kernels: dict[str, Kernel], workers: int) -> None:
    world = [_Worker(rank, route.phases(rank, workers)) for rank in range(workers)]
    _verify_phases(route, world)
    _run(world, kernels)
    for worker in world:
        _require(sorted(worker.results) == list(range(workers)), f"{route.name}: a chunk never reaches a worker")
    for chunk in range(workers):
        results = {worker.results[chunk] for worker in world}
        _require(len(results) == 1, f"{route.name}: workers end with different bits")
        result = results.pop()
        _require(result.contributions == tuple(range(workers)), f"{route.name}: a contribution is lost or doubled")
        _require(result.averaged, f"{route.name}: the sum is not divided")
        _require(result.roundings <= route.roundings(workers), f"{route.name}: too many roundings")
    _verify_losses(route, feedback, kernels, world)


def _verify_phases(route: Route, world: list[_Worker]) -> None:
    """What keeps the queue's rounds from a circle of waits, and the tags of neighbouring pieces apart."""
    _require(len({len(w.phases) for w in world}) == 1, f"{route.name}: workers have different numbers of phases")
    sent: dict[tuple[int, int, int], int] = {}
    for kind in (Send, Receive):
        for worker in world:
            for number, phase in enumerate(worker.phases):
                for move in (m for m in phase if isinstance(m, kind)):
                    _require(0 <= move.leg < route.legs(len(world)), f"{route.name}: a leg beyond its number of legs")
                    if isinstance(move, Send):
                        sent[worker.rank, move.peer, move.leg] = number
                    else:
                        before = sent.get((move.peer, worker.rank, move.leg), -1)
                        _require(before < number, f"{route.name}: a message is received in the phase of its sending")


def _verify_losses(route: Route, feedback: str, kernels: dict[str, Kernel], world: list[_Worker]) -> None:
    """applied + residual = contributed: every kernel that encodes keeps its loss, as far as `feedback` asks."""
    for worker in world:
        for phase in worker.phases:
            for move in phase:
                if not isinstance(move, Run) or kernels[move.kernel].decodes:
                    continue
                kernel = kernels[move.kernel]
                wanted = feedback == "both" or (feedback == "worker" and kernel.contributes)
                _require(kernel.residual == wanted, f"{route.name}: {kernel.name} keeps what {feedback} does not say")


Mail = dict[tuple[int, int, int], tuple[Message, Symbol]]
"""What is under way, by (sender, receiver, leg)."""


def _run(world: list[_Worker], kernels: dict[str, Kernel]) -> None:
    """Execute all workers' moves with mailboxes until none can go on."""
    mail: Mail = {}
    used: set[tuple[int, int, int]] = set()
    queues = [[move for phase in worker.phases for move in phase] for worker in world]
    going = True
    while going:
        going = False
        for worker, queue in zip(world, queues, strict=True):
            while queue and _move(worker, queue[0], kernels, mail, used):
                queue.pop(0)
                going = True
    _require(not any(queues), "a receive waits for a message that nobody sends")
    _require(not mail, "a message is sent that nobody receives")


def _move(
    worker: _Worker, move: Run | Send | Receive, kernels: dict[str, Kernel], mail: Mail, used: set[tuple[int, int, int]]
) -> bool:
    match move:
        case Send(message=message, made_by=made_by, peer=peer, leg=leg):
            key = (worker.rank, peer, leg)
            _require(key not in used, "two messages on one leg between the same workers")
            used.add(key)
            mail[key] = (message, worker.held[made_by, message])
        case Receive(message=message, made_by=made_by, peer=peer, leg=leg):
            key = (peer, worker.rank, leg)
            if key not in mail:
                return False
            sent, worker.held[made_by, message] = mail.pop(key)
            _require(sent == message, "a receive gets another message than it waits for")
        case Run():
            _kernel(worker, move, kernels[move.kernel])
    return True


def _kernel(worker: _Worker, run: Run, kernel: Kernel) -> None:
    inputs = [worker.held[key] for key in run.inputs]
    _require(len(inputs) == {"none": 0, "one": 1}.get(kernel.inputs, len(inputs)), f"{kernel.name} gets other inputs")
    _require(not kernel.owner or run.chunk == worker.rank, f"{kernel.name} runs as owner where the chunk is another's")
    if kernel.decodes:
        _require(run.chunk not in worker.results, "a chunk is decoded twice")
        worker.results[run.chunk] = inputs[0]
        return
    contributions = Counter(c for symbol in inputs for c in symbol.contributions)
    if kernel.tensor:
        contributions[worker.rank] += 1
    _require(all(count == 1 for count in contributions.values()), "a contribution is added twice")
    _require(not any(s.averaged for s in inputs), "a mean is summed again")
    rounding = 1 + max((s.roundings for s in inputs), default=0)
    _require(run.output is not None, "a kernel that encodes has no message to encode into")
    assert run.output is not None
    _require((kernel.owner, run.chunk) not in worker.made, f"{kernel.name} encodes a chunk under a used dither key")
    worker.made.add((kernel.owner, run.chunk))
    origin = (worker.rank, run.output)
    worker.held[origin] = Symbol(origin, tuple(sorted(contributions)), rounding, kernel.averages)
