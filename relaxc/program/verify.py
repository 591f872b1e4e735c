"""What every program must keep behind lowering, and every route at any time. A failure is a bug of relaxc, never the
user's."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from relaxc.program.codec import EXACT
from relaxc.program.ir import (
    ASYNC,
    After,
    Assign,
    Body,
    Decode,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Phase,
    Program,
    Statement,
    Step,
    blocks,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.reads import reads
from relaxc.program.shapes import GIVEN, Form, Shape, form_of, forms_of
from relaxc.topology.kinds import refusal
from relaxc.topology.topology import Topology
from relaxc.topology.weights import partners, receivers
from relaxc.wire.routes import (
    NEIGHBOURLY,
    Kernel,
    Message,
    Move,
    Receive,
    Route,
    Run,
    Send,
    gather_kernels,
    gather_legs,
    gather_phases,
    route_of,
)  # fmt: skip
from relaxc.wire.routes import Phase as Moves

WORKERS_TRIED = range(1, 9)
FEEDBACKS = ("none", "worker", "both")


class VerifyError(AssertionError):
    """A pass broke the program."""


def verify(program: Program) -> Program:
    """Return `program`, or raise VerifyError."""
    places: list[int] = []
    for body in program.bodies:
        _names(body)
        _states(body)
        _blocks(body)
        _require(max(_steps(body.statements)) <= 1, "two steps on one path")
        _codes(body)
        places += _places(body)
    _require(len(set(places)) == len(places), "two encodings share a place")
    _require(all(place % 2 == 0 for place in places), "a place overlaps a re-encoding's")
    return program


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise VerifyError(what)


def _values(statements: tuple[Statement, ...]) -> Iterator[Expression]:
    """Every expression of some statements, and all that it is made of."""
    for statement in flattened(statements):
        match statement:
            case Let(value=value) | Assign(value=value) | Every(period=value):
                yield from within(value)


def _names(body: Body) -> None:
    """All that is read is known by then; a let is one value."""
    known = set(GIVEN)
    for state in body.states:
        _require(reads(state.initial) <= known, f"state {state.name} reads an unknown name")
        _require(state.name not in known, f"state {state.name} is a second one")
        known.add(state.name)
    for statement in flattened(body.statements):
        match statement:
            case Let(name=name, value=value):
                _require(reads(value) <= known, f"let {name} reads an unknown name")
                _require(name not in known, f"let {name} is a second one")
                known.add(name)
            case Assign(name=name, value=value):
                _require(name in known, f"assignment to unknown {name}")
                _require(reads(value) <= known, f"assignment to {name} reads an unknown name")
            case Every(period=period):
                _require(reads(period) <= known, "a period reads an unknown name")


def _states(body: Body) -> None:
    forms = forms_of(body)
    for state in body.states:
        _require(state.shape == str(forms[state.name].shape), f"state {state.name} has another shape than it is given")
        _require(state.shape in ("number", "cell", "tensor"), f"state {state.name} is a code")


def _blocks(body: Body) -> None:
    numbers = [s.block for s in flattened(body.statements) if isinstance(s, Every | Phase | After)]
    _require(len({0, *numbers}) == len(numbers) + 1, "two blocks share a number")
    for statement in flattened(body.statements):
        match statement:
            case After(delay=delay):
                _require(delay >= 1 or delay == ASYNC, "an `after` of less than one iteration")
            case Phase(first=first, end=end):
                _require(first >= 0 and (end is None or first < end), "a phase that is never on")
            case Every(how=how):
                _require(how in ("number", "geometric", "staggered"), f"no period {how}")


def _steps(statements: tuple[Statement, ...]) -> Iterator[int]:
    """How many steps there are on each path of some statements: phases are alternatives."""
    always = sum(isinstance(s, Step) for s in statements)
    always += sum(max(_steps(blocks(s))) for s in statements if isinstance(s, Every | After))
    phases: Counter[str] = Counter()
    for statement in statements:
        if isinstance(statement, Phase):
            phases[statement.name] += max(_steps(statement.body))
    yield always
    yield from (always + steps for steps in phases.values())


def _codes(body: Body) -> None:
    """Codes are sent or decoded, and exchanges are of codes or tensors, as their kind needs it."""
    forms = forms_of(body)
    for e in _values(body.statements):
        match e:
            case Decode(code=code):
                _require(_is_code(code, forms), "what is decoded is no code")
            case Exchange():
                _exchange(e, forms)


def _is_route(name: str) -> bool:
    try:
        return bool(route_of(name).name)
    except KeyError:
        return False


def _is_code(e: Expression, forms: dict[str, Form]) -> bool:
    return form_of(e, forms).shape is Shape.CODE


def _exchange(e: Exchange, forms: dict[str, Form]) -> None:
    _require(e.kind in ("mean", "sum", *NEIGHBOURLY), f"no exchange {e.kind}")
    near = e.kind in NEIGHBOURLY
    _require((e.topology is not None) == near, f"a {e.kind} with another way of finding its partners")
    _require(e.route == "" if near else _is_route(e.route), f"a {e.kind} on route {e.route!r}")
    _require(e.feedback in FEEDBACKS, f"no feedback {e.feedback}")
    coded = _is_code(e.value, forms)
    _require(e.kind != "relay" or (e.codec == EXACT and not coded), "a relay of a code")
    _require(not coded or e.codec is None, "a code is encoded again")
    _require(e.codec is not None or e.rank > 0 or e.feedback == "none", "feedback without a codec")
    _require(not e.rank or (e.kind in ("mean", "sum") and e.codec is None and not coded), "a rank where none can be")
    _require(not e.rank or e.feedback != "both", "an owner's feedback without owners")
    _require(coded or e.codec is not None or not near, f"a {e.kind} without a codec")


def _places(body: Body) -> list[int]:
    return [e.place for e in _values(body.statements) if isinstance(e, Exchange | Encode)]


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
    phases: tuple[Moves, ...]
    held: dict[tuple[int, Message], Symbol] = field(default_factory=dict)
    results: dict[int, Symbol] = field(default_factory=dict)
    made: set[tuple[bool, int]] = field(default_factory=set)
    """(as owner, chunk) of what it has encoded: the coordinates of a dither key."""


def verify_route(route: Route, feedback: str, kernels: tuple[Kernel, ...], kind: str = "mean") -> None:
    """For several worker counts: every contribution arrives exactly once at everyone, divided once for a mean and never
    for a sum; all workers hold the same bits; sends and receives pair up; roundings are as stated; what is lost is kept
    where `feedback` says."""
    for workers in (n for n in WORKERS_TRIED if route.refusal(n) is None):
        _verify_for(route, feedback, {k.name: k for k in kernels}, workers, kind)


def _verify_for(route: Route, feedback: str, kernels: dict[str, Kernel], workers: int, kind: str) -> None:
    world = [_Worker(rank, route.phases(rank, workers)) for rank in range(workers)]
    _verify_phases(route.name, route.legs(workers), world)
    _run(world, kernels)
    chunks = range(1 if route.whole else workers)
    for worker in world:
        _require(sorted(worker.results) == list(chunks), f"{route.name}: a chunk never reaches a worker")
    for chunk in chunks:
        results = {worker.results[chunk] for worker in world}
        _require(len(results) == 1, f"{route.name}: workers end with different bits")
        result = results.pop()
        _require(result.contributions == tuple(range(workers)), f"{route.name}: a contribution is lost or doubled")
        _require(result.averaged == (kind == "mean"), f"{route.name}: the sum is not divided, or divided for a sum")
        _require(result.roundings <= route.roundings(workers), f"{route.name}: too many roundings")
    _verify_losses(route, feedback, kernels, world)


def verify_gather(topology: Topology, workers: int, rounds: int = 4, seed: int = 0) -> None:
    """Of a mix: in each round every worker makes its result of its own code and of those that it hears, once each, and
    sends and receives pair up. Where there is no such topology there is nothing to verify."""
    if refusal(topology, workers) is not None:
        return
    for round, guarded in itertools.product(range(rounds), (False, True)):
        kernels = {k.name: k for k in gather_kernels("mix", "none", guarded)}
        heard = [partners(topology, workers, round, seed, rank) for rank in range(workers)]
        told = [receivers(topology, workers, round, seed, rank) for rank in range(workers)]
        world = [_Worker(rank, gather_phases(rank, heard[rank], told[rank], guarded)) for rank in range(workers)]
        _verify_phases(str(topology), gather_legs(guarded), world)
        _run(world, kernels)
        for worker in world:
            wanted = tuple(sorted({worker.rank, *heard[worker.rank]}))
            _require(worker.results[0].contributions == wanted, f"{topology}: a neighbour is lost or doubled")
            _require(worker.results[0].roundings == 1, f"{topology}: encoded more than once")


def _verify_phases(name: str, legs: int, world: list[_Worker]) -> None:
    """What keeps the queue's rounds from a circle of waits, and the tags of neighbouring pieces apart."""
    _require(len({len(w.phases) for w in world}) == 1, f"{name}: workers have different numbers of phases")
    sent: dict[tuple[int, int, int], int] = {}
    for kind in (Send, Receive):
        for worker in world:
            for number, phase in enumerate(worker.phases):
                for move in (m for m in phase if isinstance(m, kind)):
                    _require(0 <= move.leg < legs, f"{name}: a leg beyond its number of legs")
                    if isinstance(move, Send):
                        sent[worker.rank, move.peer, move.leg] = number
                    else:
                        before = sent.get((move.peer, worker.rank, move.leg), -1)
                        _require(before < number, f"{name}: a message is received in the phase of its sending")


def _verify_losses(route: Route, feedback: str, kernels: dict[str, Kernel], world: list[_Worker]) -> None:
    """applied + residual = contributed: every kernel that encodes keeps its loss, as far as `feedback` asks."""
    for worker in world:
        for phase in worker.phases:
            for move in phase:
                if not isinstance(move, Run) or kernels[move.kernel].decodes:
                    continue
                kernel = kernels[move.kernel]
                wanted = feedback == "both" or (feedback == "worker" and kernel.contributes)
                wanted = wanted and not kernel.exact
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


def _move(worker: _Worker, move: Move, kernels: dict[str, Kernel], mail: Mail, used: set[tuple[int, int, int]]) -> bool:
    match move:
        case Send(message=message, made_by=made_by, peer=peer, leg=leg):
            key = (worker.rank, peer, leg)
            _require(key not in used, "two messages on one leg between the same workers")
            used.add(key)
            mail[key] = (message, _sent(worker, message, made_by, peer))
        case Receive(message=message, made_by=made_by, peer=peer, leg=leg):
            key = (peer, worker.rank, leg)
            if key not in mail:
                return False
            sent, worker.held[made_by, message] = mail.pop(key)
            _require(sent == message, "a receive gets another message than it waits for")
        case Run():
            _kernel(worker, move, kernels[move.kernel])
    return True


def _sent(worker: _Worker, message: Message, made_by: int, peer: int) -> Symbol:
    """Values are those of a worker's own code, and go to who has told that they are wanted."""
    if message.what != "values":
        return worker.held[made_by, message]
    _require(made_by == worker.rank and message.stage == peer, "values are another's, or for another")
    _require(
        (peer, Message(worker.rank, message.chunk, "trips")) in worker.held, "values are sent that nobody asked for"
    )
    return worker.held[worker.rank, Message(0, message.chunk)]


def _checked(worker: _Worker, run: Run, inputs: list[Symbol]) -> None:
    assert run.output is not None
    _require(run.output.stage == run.inputs[0][0], "what has tripped is told of another's code")
    worker.held[worker.rank, run.output] = inputs[0]


def _kernel(worker: _Worker, run: Run, kernel: Kernel) -> None:
    inputs = [worker.held[key] for key in run.inputs]
    exact = {message.exact for _maker, message in run.inputs}
    _require(exact <= {kernel.takes_exact}, f"{kernel.name} takes a message of another layout")
    _require(len(inputs) == {"none": 0, "one": 1}.get(kernel.inputs, len(inputs)), f"{kernel.name} gets other inputs")
    _require(not kernel.owner or run.chunk == worker.rank, f"{kernel.name} runs as owner where the chunk is another's")
    if kernel.checks:
        _checked(worker, run, inputs)
        return
    for (maker, _), near in zip(run.inputs, run.near, strict=False):
        own = maker == worker.rank and near is None
        _require(own or (near is not None and near in worker.held), "a code is decoded before its values are there")
    if kernel.decodes:
        _require(run.chunk not in worker.results, "a chunk is decoded twice")
        result = _gathered(inputs)
        worker.results[run.chunk] = replace(result, averaged=result.averaged or kernel.averages)
        return
    contributions = Counter(c for symbol in inputs for c in symbol.contributions)
    if kernel.tensor:
        contributions[worker.rank] += 1
    _require(all(count == 1 for count in contributions.values()), "a contribution is added twice")
    _require(not any(s.averaged for s in inputs), "a mean is summed again")
    rounding = (not kernel.makes_exact) + max((s.roundings for s in inputs), default=0)
    _require(run.output is not None, "a kernel that encodes has no message to encode into")
    assert run.output is not None
    _require(run.output.exact == kernel.makes_exact, f"{kernel.name} makes a message of another layout")
    if not kernel.exact:
        key = (kernel.owner, run.chunk)
        _require(key not in worker.made, f"{kernel.name} encodes a chunk under a used dither key")
        worker.made.add(key)
    origin = (worker.rank, run.output)
    worker.held[origin] = Symbol(origin, tuple(sorted(contributions)), rounding, kernel.averages)


def _gathered(inputs: list[Symbol]) -> Symbol:
    """What is made of the codes that a worker decodes: of one, that one."""
    contributions = tuple(sorted(c for symbol in inputs for c in symbol.contributions))
    return Symbol(inputs[0].origin, contributions, max(s.roundings for s in inputs), inputs[0].averaged)
