"""What a program costs, by counting: bytes per iteration, memory, roundings; and its exchanges in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import isqrt

from relaxc.program.codec import EXACT
from relaxc.program.gradients import take_gradient
from relaxc.program.ir import (
    After,
    Assign,
    Body,
    Codec,
    Constant,
    Encode,
    Every,
    Exchange,
    Let,
    Phase,
    Read,
    Statement,
    Step,
    exchanges,
    flattened,
    within,
)  # fmt: skip
from relaxc.program.launched import launched_of
from relaxc.program.paths import PathBody
from relaxc.program.shapes import Shape, form_of, forms_of
from relaxc.topology.kinds import located as located_topology
from relaxc.topology.kinds import machine_size, met, period
from relaxc.topology.topology import Topology
from relaxc.topology.weights import weights
from relaxc.wire.layout import EXACT as PLAIN
from relaxc.wire.layout import Layout
from relaxc.wire.low_rank import factors_of
from relaxc.wire.routes import (
    GATHER_ALL_STORY,
    GATHER_STORY,
    GUARDED_STORY,
    NEIGHBOURLY,
    RELAY_STORY,
    WHEN,
    Route,
    gathers,
    located,
    route_of,
)

MILLION = 1_000_000
REAL_BYTES = 4
SEED = 0
GATHERED = "each worker adds up its own numbers and its neighbours' in rank order with their weights"
KEPT_BY_A_RELAY = 3
"""Messages for each neighbour: the one to it, the one from it, and that of the time before."""
ROUNDS_SAMPLED = 64
"""Rounds over which the messages of a topology without a pattern are averaged."""


# --- exchanges and how often they run


@dataclass(frozen=True, slots=True)
class Sent:
    """An exchange, the codec of what it sends (None for plain numbers), whether that is a code, and in which share of
    the iterations it runs (None where that shows while training). Of a `cell`, one number for each parameter is
    sent, which counts as nothing beside a million elements."""

    exchange: Exchange
    codec: Codec | None
    coded: bool
    share: float | None
    cell: bool = False


def sent_in(body: Body, phase: str) -> tuple[Sent, ...]:
    """The exchanges of a body while one of its phases is on, in the order in which they leave."""
    return tuple(_sent_in(body, 1.0, phase))


def _sent_in(body: Body, share: float | None, phase: str | None) -> Iterator[Sent]:
    lets = {s.name: s for s in flattened(body.statements) if isinstance(s, Let)}
    forms, launched = forms_of(body), launched_of(body.statements).exchanges
    for sent in _sent(body.statements, lets, share, phase):
        known = None if sent.exchange.place in launched else sent.share
        yield replace(sent, share=known, cell=form_of(sent.exchange, forms).shape is Shape.CELL)


def _sent(
    statements: tuple[Statement, ...], lets: dict[str, Let], share: float | None, phase: str | None
) -> Iterator[Sent]:
    """`phase` None: any phase counts."""
    for statement in statements:
        match statement:
            case Let(value=value) | Assign(value=value):
                for e in within(value):
                    if isinstance(e, Exchange):
                        code = _code(e, lets)
                        yield Sent(e, e.codec if code is None else code.codec, code is not None, share)
            case Every(body=inner, period=every):
                known = isinstance(every, Constant) and share is not None
                rarer = share / every.value if known else None  # type: ignore[union-attr,operator]
                yield from _sent(inner, lets, rarer, None)
            case After(body=inner):
                yield from _sent(inner, lets, share, None)
            case Phase(name=name, body=inner) if phase is None or name == phase:
                yield from _sent(inner, lets, share, None)


def _code(e: Exchange, lets: dict[str, Let]) -> Encode | None:
    value = lets[e.value.name].value if isinstance(e.value, Read) and e.value.name in lets else e.value
    return value if isinstance(value, Encode) else None


def all_exchanges(body: Body) -> tuple[Exchange, ...]:
    return tuple(exchanges(body.statements))


def sent_bytes(sent: Sent, workers: int, elements: int = MILLION) -> float:
    """Payload that a worker sends each time for f32 parameters of `elements` in all, the mean over workers and rounds.
    An all-reduce sends 2 (n - 1) / n of its buffer (ring)."""
    if sent.cell:
        return 0
    if sent.codec is None:
        summed = factor_elements(sent.exchange.rank, elements) if sent.exchange.rank else elements
        return 2 * (workers - 1) / workers * summed * REAL_BYTES
    code = sent.codec.layout.bytes_of(elements, REAL_BYTES)
    if _nearby(sent):
        return messages(sent.exchange, workers) * (code + _answer(sent.codec, elements))
    if _gathers(sent):
        return (workers - 1) * code
    return sum(travelled(sent, workers, elements).values())


def travelled(sent: Sent, workers: int, elements: int = MILLION) -> dict[bool, float]:
    """Of a mean or sum on a route, by whether it leaves the machine: bytes that a worker sends, the mean over
    workers."""
    assert sent.codec is not None
    size = {exact: _layout(sent.codec, exact).bytes_of(elements, REAL_BYTES) for exact in (False, True)}
    found = {False: 0.0, True: 0.0}
    for (exact, across), chunks in figured(sent.exchange.route, workers).sends(workers).items():
        found[across] += chunks * size[exact] / workers**2
    return found


def _layout(codec: Codec, exact: bool) -> Layout:
    return PLAIN if exact else codec.layout


def assumed(workers: int) -> int:
    """The workers of a machine where that is left open: two machines, or one for each of an odd number of workers."""
    return workers // 2 if workers % 2 == 0 else 1


def taken(topology: Topology, workers: int) -> Topology:
    return located_topology(topology, assumed(workers))


def figured(route: str, workers: int) -> Route:
    return route_of(located(route, assumed(workers)))


def machines(body: Body, workers: int) -> dict[int, tuple[float, float]]:
    """By the workers of a machine: bytes that a worker sends across and within machines, each time, in all exchanges
    that know any."""
    found: dict[int, tuple[float, float]] = {}
    lets = {s.name: s for s in flattened(body.statements) if isinstance(s, Let)}
    for sent in _sent(body.statements, lets, None, None):
        mixes = sent.exchange.topology is not None
        if (inner := _inner(sent.exchange, workers)) is not None and (mixes or not sent.coded):
            far, near = found.get(inner, (0.0, 0.0))
            bytes = _mixed(sent, workers, inner) if mixes else travelled(sent, workers)
            found[inner] = far + bytes[True], near + bytes[False]
    return found


def _inner(exchange: Exchange, workers: int) -> int | None:
    """The workers of a machine, where an exchange knows any."""
    if exchange.topology is not None:
        return machine_size(taken(exchange.topology, workers))
    route = figured(exchange.route, workers)
    return route.inner if route.name == "hierarchy" else None


def _mixed(sent: Sent, workers: int, inner: int) -> dict[bool, float]:
    code = (sent.codec or EXACT).layout.bytes_of(MILLION, REAL_BYTES)
    return {across: count * code for across, count in _messages(sent.exchange, workers, inner).items()}


def route_refusal(exchange: Exchange, workers: int) -> str | None:
    """Why `workers` can't take the route of an exchange."""
    return figured(exchange.route, workers).refusal(workers) if exchange.route else None


def _answer(codec: Codec, elements: int) -> int:
    """What a receiver tells of a message whose codec has a guard: a byte a block. Nothing is foreseen to trip."""
    return -(-elements // codec.layout.block_of(elements)) if codec.guard is not None else 0


def factor_elements(rank: int, elements: int) -> int:
    """Of a square matrix of that many elements."""
    factors = factors_of((isqrt(elements), isqrt(elements)), rank)
    return factors.p + factors.q


def messages(exchange: Exchange, workers: int) -> float:
    """Messages that a worker sends in a round of a mix, the mean over workers and rounds."""
    return sum(_messages(exchange, workers, 1).values())


def _messages(exchange: Exchange, workers: int, inner: int) -> dict[bool, float]:
    """By whether they leave a machine with `inner` workers."""
    assert exchange.topology is not None, "a mix has a topology"
    topology = taken(exchange.topology, workers)
    if met(topology):
        return {False: 1.0, True: 0.0}
    rounds, found = period(topology, workers) or ROUNDS_SAMPLED, {False: 0.0, True: 0.0}
    for round, rank in product(range(rounds), range(workers)):
        for peer, _ in weights(topology, workers, round, SEED, rank):
            found[peer // inner != rank // inner] += (peer != rank) / (rounds * workers)
    return found


def per_iteration(body: Body, phase: str, workers: int, elements: int = MILLION) -> tuple[int, bool]:
    """Bytes that a worker sends per iteration on average in a phase; False where some exchange runs at times that are
    computed while training: it counts as running each time."""
    total, known = 0.0, True
    for sent in sent_in(body, phase):
        total += sent_bytes(sent, workers, elements) * (1.0 if sent.share is None else sent.share)
        known &= sent.share is not None
    return round(total), known


# --- memory


@dataclass(frozen=True, slots=True)
class MemoryBytes:
    """Per worker, for `elements` f32 parameters: states, residuals, messages, and values that wait: for an exchange,
    for a later kernel, or to land (an uncompressed gradient bucket's flat buffer is where `.grad` lives, so it counts
    only with a delay)."""

    states: int
    residuals: int
    messages: int
    waiting: int

    @property
    def total(self) -> int:
        return self.states + self.residuals + self.messages + self.waiting


def memory_bytes(body: Body, paths: PathBody, workers: int, elements: int = MILLION) -> MemoryBytes:
    """`paths` are those of `body`. Phases share nothing: every exchange of the text has its own buffers."""
    whole = elements * REAL_BYTES
    residuals = held = 0.0
    for sent in _sent_in(body, None, None):
        held += _message_bytes(sent, workers, elements)
        if sent.exchange.feedback != "none":
            residuals += whole + (whole / workers if sent.exchange.feedback == "both" and not _nearby(sent) else 0)
    states = whole * sum(state.shape == "tensor" for state in body.states)
    return MemoryBytes(states, round(residuals), round(held), whole * _waiting(paths))


def _waiting(paths: PathBody) -> int:
    """Values of all parameters that are kept at the same time."""
    slots = sum(t.copies for t in paths.transfers if t.shape == "tensor" and t.slotted)
    late = 0 if paths.gradient is None or not paths.gradient.delay else paths.gradient.delay + 1
    return slots + late + sum(kept.copies for kept in paths.kept if kept.shape == "tensor")


def _gathers(sent: Sent) -> bool:
    return gathers(sent.exchange.kind, sent.coded, sent.exchange.route)


def _nearby(sent: Sent) -> bool:
    return sent.exchange.kind in NEIGHBOURLY


def _message_bytes(sent: Sent, workers: int, elements: int) -> float:
    """The messages that a worker has of its own and of others."""
    if sent.cell:
        return 0
    if sent.codec is None:
        return factor_elements(sent.exchange.rank, elements) * REAL_BYTES if sent.exchange.rank else 0
    code = sent.codec.layout.bytes_of(elements, REAL_BYTES)
    if sent.exchange.kind == "relay":
        return KEPT_BY_A_RELAY * messages(sent.exchange, workers) * code
    if _nearby(sent):
        return (1 + messages(sent.exchange, workers)) * code
    if _gathers(sent):
        return workers * code
    held = figured(sent.exchange.route, workers).buffers(workers)
    return sum(count * _layout(sent.codec, exact).bytes_of(elements) for exact, count in held.items()) / workers**2


def near_codecs(body: Body, topology: Topology) -> tuple[Codec, ...]:
    """The codecs of mixes over a topology that decode near the receiver's own value."""
    lets = {s.name: s for s in flattened(body.statements) if isinstance(s, Let)}
    sent = _sent(body.statements, lets, None, None)
    found = (s.codec for s in sent if s.exchange.topology == topology and s.codec is not None and s.codec.near)
    return tuple(dict.fromkeys(found))


def native_gradient(body: Body) -> Exchange | None:
    """The exchange that runs bucket by bucket while backward does."""
    gradient, _ = take_gradient(body.statements)
    return None if gradient is None else gradient.exchange


# --- words


def roundings(sent: Sent, workers: int) -> int:
    """How often a value is encoded between a contribution and the result."""
    if sent.exchange.rank:
        return 1
    if sent.codec is None or sent.codec == EXACT:
        return 0
    return 1 if _gathers(sent) else figured(sent.exchange.route, workers).roundings(workers)


def _story(body: Body, sent: Sent) -> tuple[str, ...]:
    """What is sent when and to whom, in sentences."""
    exchange = sent.exchange
    native = exchange is native_gradient(body)
    if native and sent.codec is None:
        return ("each bucket is all-reduced as soon as backward has made its gradients",)
    when = moment(body, exchange)
    if exchange.rank:
        factors = f"two factors of rank {exchange.rank} of each matrix are all-reduced, the second made with the first"
        return (f"{when} {factors}; their product is the {exchange.kind}",)
    if sent.cell:
        return (f"{when} {_CELLS[_nearby(sent)]}",)
    if sent.codec is None:
        return (f"{when} the {exchange.kind} over all workers is taken by an all-reduce",)
    if exchange.kind == "relay":
        return f"{when} {RELAY_STORY[0]}", RELAY_STORY[1]
    if _nearby(sent) and sent.codec == EXACT:
        return f"{when} each worker sends its own numbers, as they are, to each of its neighbours", GATHERED
    if _nearby(sent) or sent.coded:
        told: tuple[str, ...] = GATHER_STORY if _nearby(sent) else GATHER_ALL_STORY
        told = told if sent.codec.guard is None else GUARDED_STORY
        return tuple(f"{when} {line}" if line is told[0] else line for line in told)
    each = WHEN if native else f"{when} each worker"
    return route_of(exchange.route).story_of(exchange.kind, each)


_CELLS = {
    False: "one number for each parameter is sent to all workers by an all-reduce",
    True: "each worker sends one number for each parameter to each of its neighbours, and adds up theirs",
}


def story(body: Body, sent: Sent) -> tuple[str, ...]:
    """The story with the codec's name in it."""
    code = "" if sent.codec is None else sent.codec.text
    told = tuple(line.format(code=code) for line in _story(body, sent))
    return (*told, *_machines_told(sent.exchange.route)) if sent.codec is not None else told


def _machines_told(route: str) -> Iterator[str]:
    if route and route_of(route).name == "hierarchy":
        inner = route_of(route).inner
        if located(route, inner) == route:
            yield f"a machine has {inner} workers" if inner > 1 else "each worker is a machine of its own"
        else:
            yield "a machine has as many workers as LOCAL_WORLD_SIZE says; figures are of two machines"


def moment(body: Body, exchange: Exchange) -> str:
    """Where in the iteration an exchange stands. All down to the last assignment of grad belongs to backward."""
    statements = list(flattened(body.statements))
    place = next(
        n
        for n, s in enumerate(statements)
        if isinstance(s, Let | Assign) and any(e is exchange for e in within(s.value))
    )
    if any(isinstance(s, Assign) and s.name == "grad" for s in statements[place:]):
        return "at the end of backward"
    if any(isinstance(s, Step) for s in statements[:place]):
        return "after the optimiser's step"
    return "before the optimiser's step" if any(isinstance(s, Step) for s in statements) else "in optimizer.step()"
