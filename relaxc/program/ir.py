"""The program: what one iteration means, for this worker's tensor of one parameter.

One small algebra of expressions serves algorithms and codecs; statements are those of the language. Every node that
came from text keeps its place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxc.language.source import Span
from relaxc.topology.topology import Topology
from relaxc.wire.layout import Layout

# --- expressions


@dataclass(frozen=True, slots=True)
class Constant:
    """A number known when the spec is compiled; folded in f64, rounded once where it is used."""

    value: float


@dataclass(frozen=True, slots=True)
class Read:
    """A name in scope: weight, grad, lr, t, workers, rank, a let or a state; in a codec `x`, `index`, a let, a field,
    or the name of `receive near`."""

    name: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Optimizer:
    """`optimizer.NAME`: a state of the user's optimiser for this parameter (a tensor), or one of its settings (a
    number)."""

    name: str
    tensor: bool
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Own:
    """W[i, i] of a topology in this round."""

    topology: Topology
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Apply:
    """An elementwise function: + - * / ^ neg < <= > >= == != and or not, and ELEMENTWISE of language/functions.py.
    What each means is in program/functions.py."""

    function: str
    arguments: tuple[Expression, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Reduce:
    """In a codec over its block: min, max, sum, mean, norm. In an algorithm over this parameter: norm. In the order of
    wire/sums.py."""

    function: str
    argument: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Dither:
    """floor(argument + u), u drawn as wire/dither.py says."""

    argument: Expression


@dataclass(frozen=True, slots=True)
class Chosen:
    """In a codec: 1 at one element of each block, drawn as wire/dither.py says, the same for sender and receiver."""


@dataclass(frozen=True, slots=True)
class Transform:
    """In a codec: `dct` of a block, or its inverse `idct`, as a matrix with rows of `side` (wire/cosines.py)."""

    function: str
    argument: Expression
    side: int


@dataclass(frozen=True, slots=True)
class Encode:
    """A code: what this worker sends of `value`. `place` is an encoding place, as an exchange's."""

    value: Expression
    codec: Codec
    place: int
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Decode:
    """What a receiver makes of `code`, a Read of a let that is an Encode, or an Encode; a codec with `near` decodes
    next to what was put into that very code."""

    code: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """`kind` is mean or sum, over all workers, every worker receiving the same bits, or mix or push, over the
    neighbours in `topology` with its weights, or relay, along the edges of a tree.

    `value` is a tensor, sent through `codec` where there is one, or a code (then `codec` is None and `feedback` none),
    or a number or cell, which is sent as it is: what arrives is a cell. What a relay sends goes as it is, too.
    `feedback` is none, worker or both. `route` names one for mean and sum (wire/routes.route_of), "" for the others.
    `place` numbers the encoding places of a program: this one's contributions have `place`, its re-encoding after a sum
    has `place + 1`. A mean or sum with a `rank` is one of factors of that rank (low_rank.py), without a codec.
    """

    kind: str
    value: Expression
    codec: Codec | None
    feedback: str
    route: str
    topology: Topology | None
    place: int
    span: Span | None = field(default=None, compare=False, repr=False)
    rank: int = 0


Expression = (
    Constant | Read | Optimizer | Own | Apply | Reduce | Dither | Chosen | Transform | Encode | Decode | Exchange
)


# --- codecs


@dataclass(frozen=True, slots=True)
class CodecLet:
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Send:
    """Field number `field` of the layout; from here on its name means what the receiver has."""

    field: int
    name: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Guard:
    """Of a codec with `near`: `holds` is a truth for each block at the receiver, who decoded the block rightly where it
    is one. Beside what `receive` reads it reads `lets`, and takes reductions over the block."""

    lets: tuple[CodecLet, ...]
    holds: Expression
    updates: tuple[CodecLet, ...] = ()
    """What states become with each message of another worker, each where it is finite."""


@dataclass(frozen=True, slots=True)
class Codec:
    """A codec with its arguments folded in. `text` is its full form, `minmax(bits = 8, block = 512, ...)`.

    `receive` reads fields, and lets in `steps` that read only fields and constants; with `near`, which is then the name
    that was written, also the receiver's own value. A block for which `guard` does not hold is decoded near what its
    sender put into it. All may read `index`, the element's number in its block. `cast` is true where the only field is
    a float per element: such a codec is exempt from scale-freedom and has no bias to feed back.
    """

    text: str
    layout: Layout
    steps: tuple[CodecLet | Send, ...]
    receive: Expression
    dithers: bool
    near: str | None = None
    guard: Guard | None = None
    states: tuple[tuple[str, float], ...] = ()
    """A number for each block and encoder, with its first value: `steps` read it, and the guard's updates."""

    @property
    def cast(self) -> bool:
        return all(f.per_element and not f.wire.bits and f.wire.kind != "top" for f in self.layout.fields)

    @property
    def selects(self) -> bool:
        """Whether a field holds the largest of a block. What such codes add up to is not encoded again: it has more
        elements than one of them."""
        return any(f.wire.kind == "top" for f in self.layout.fields)

    @property
    def biased(self) -> bool:
        """Whether what it loses has a mean that is not zero, and is worth keeping."""
        return not (self.cast or self._rounds_by_chance())

    def _rounds_by_chance(self) -> bool:
        """Whether something that is sent of each element was rounded by chance, not only a number of the block."""
        by_chance: set[str] = set()
        for step in self.steps:
            parts = tuple(within(step.value))
            drawn = any(isinstance(p, Dither) or (isinstance(p, Read) and p.name in by_chance) for p in parts)
            if isinstance(step, Send):
                if drawn and self.layout.fields[step.field].per_element:
                    return True
            elif drawn:
                by_chance.add(step.name)
        return False


# --- statements


@dataclass(frozen=True, slots=True)
class State:
    """Lives across iterations; starts as `initial`. `shape` is number (the host keeps it), cell (a number that depends
    on a tensor, by norm, or was exchanged: one element per parameter, kept beside the tensors) or tensor."""

    name: str
    initial: Expression
    shape: str
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Let:
    name: str
    value: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Assign:
    """`x op= e` is `x = x op e` here."""

    name: str
    value: Expression
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Step:
    """The user's own optimiser, this parameter's share of it."""

    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Every:
    """`how` is number (run at every `period`-th time that control reaches it), geometric (run with probability
    1 / period, drawn from the shared seed) or staggered (as number, each parameter with its own head start).

    `block` numbers the blocks of a body: the body itself is 0. Each counts its runs.
    """

    block: int
    how: str
    period: Expression
    body: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Phase:
    """Runs while the enclosing block's number of earlier runs is in [first, end); `end` None is for ever."""

    block: int
    name: str
    first: int
    end: int | None
    body: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class After:
    """The body runs `delay` iterations after its launch, with the lets of the launching iteration. With the delay ASYNC
    it runs when the exchanges that it reads have arrived, each worker's by itself; with `most`, at the latest that many
    iterations after the launch."""

    block: int
    delay: int
    body: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    most: int = 0

    @property
    def asynchronous(self) -> bool:
        return self.delay == ASYNC


ASYNC = -1
"""The delay of an `after async`, which lands when what it has launched has arrived."""

Statement = Let | Assign | Step | Every | Phase | After


Selector = tuple[object, ...] | None
"""A test of a parameter as nested plain tuples, so that it can be stored: ("and", a, b), ("not", a), ("name",
"embed.*"), ("<", "ndim", 2), ("==", "dtype", "f32"). None matches everything. wire/selection.py evaluates it."""


@dataclass(frozen=True, slots=True)
class Body:
    """The program of the parameters that `selector` matches and no earlier body's does. Names of lets are unique in a
    body. `span` is the statement that runs it, `title` the name of the algorithm where it is defined in that file."""

    selector: Selector
    states: tuple[State, ...]
    statements: tuple[Statement, ...]
    span: Span | None = field(default=None, compare=False, repr=False)
    title: Span | None = field(default=None, compare=False, repr=False)

    @property
    def places(self) -> tuple[Span, ...]:
        """Where to show what is wrong with the body as a whole: the algorithm's name, and the statement that runs
        it."""
        use = self.span and self.span.first_line
        if use is None or self.title is None:
            return () if use is None else (use,)
        runs = self.title.start < use.start or use.end <= self.title.start
        return (self.title, use) if runs else (self.title,)


@dataclass(frozen=True, slots=True)
class Program:
    bodies: tuple[Body, ...]


# --- walks


def children(e: Expression) -> tuple[Expression, ...]:
    match e:
        case Apply(arguments=arguments):
            return arguments
        case Reduce(argument=argument) | Dither(argument=argument) | Transform(argument=argument):
            return (argument,)
        case Encode(value=value) | Exchange(value=value):
            return (value,)
        case Decode(code=code):
            return (code,)
    return ()


def within(e: Expression) -> Iterator[Expression]:
    """`e` and all that it is made of, inner first, left to right."""
    for child in children(e):
        yield from within(child)
    yield e


def blocks(statement: Statement) -> tuple[Statement, ...]:
    """The statements inside of one."""
    return statement.body if isinstance(statement, Every | Phase | After) else ()


def flattened(statements: tuple[Statement, ...]) -> Iterator[Statement]:
    """All statements in text order, those inside of others behind them."""
    for statement in statements:
        yield statement
        yield from flattened(blocks(statement))


def exchanges(statements: tuple[Statement, ...]) -> Iterator[Exchange]:
    """The exchanges of some statements, in the order in which they leave."""
    for statement in flattened(statements):
        if isinstance(statement, Let | Assign):
            yield from (e for e in within(statement.value) if isinstance(e, Exchange))
