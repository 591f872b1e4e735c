"""A body as the runtime carries it out: no blocks, no order of text, but paths of fragments and exchanges.

The host knows before an iteration which blocks will run: whether an `every` is due, which phase it is, whether
something late lands. These truths, one per *guard*, choose a *path*: a straight line, in which everything between two
exchanges can become one kernel. In passes/, line.py writes it, cut.py cuts it where something has to be waited for,
fragments.py makes kernels of what is between, placement.py says in which stage of an iteration each of them stands;
tests/path_runner.py carries them out in numpy, as interpret.py
does the program.

Names in fragments: `weight`, `grad`; states by their names; `kept.N`, a value that lives from one fragment to another;
`slot.N`, the value that exchange N takes from and leaves in memory; `arrived`, the decoded result of the exchange that
a fragment receives; `coded`, what a receiver will make of the code that a fragment sends; `own_coded`, what it makes of
this worker's own, where a fragment receives the codes of all neighbours. Reads of anything else (`lr`, `t`, number
states, numbers of the path) are numbers, which the host evaluates.

Two functions occur in fragments only. `stored(e)` is e as the parameter's dtype holds it, `finite(e, old)` is e where
it is finite and else old: they stand where weight, grad or a state is read after it was assigned in the same fragment.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxc.language.source import Span
from relaxc.program.ir import Exchange, Expression, Let, Selector, State
from relaxc.topology.topology import Topology

STORED, FINITE = "stored", "finite"


@dataclass(frozen=True, slots=True)
class Guard:
    """`kind` is every, phase, land or launch; `parent` the guard of the enclosing block, -1 for the body. Only where
    the parent is true does an `every` count or a `phase` look. `land` belongs to an `after`: it is true where an
    entry of that block's queue is due, whatever the parent; with the delay ASYNC, where its launch has arrived.
    `launch` stands right behind the `land` of an async block, with the same block and parent: it is true where the
    parent is, nothing of the block is under way, and nothing of it lands in this iteration.

    every: `how` and `period` as in ir.Every. phase: `first`, `end`. land: `delay`, and `most`, the age at which an
    async landing is waited for (0: never).
    """

    kind: str
    parent: int
    block: int
    how: str = ""
    period: Expression | None = None
    first: int = 0
    end: int | None = None
    delay: int = 0
    most: int = 0


@dataclass(frozen=True, slots=True)
class SetNumber:
    """In the control of a body: the number state `name` takes this value, where `guard` holds (-1: always)."""

    name: str
    value: Expression
    guard: int


Control = tuple[Guard | SetNumber, ...]
"""In text order: evaluated from the top it gives the truth of each guard (their numbers count Guards only)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """An exchange as paths use it. Of its operands only `codec`, `kind`, `feedback`, `route`, `topology`, `place`
    count. `shape` is tensor or cell: a cell leaves from and lands in a slot of cells.

    `codec` and `place` are those of the code that is sent, where it is a code; a plain mix or push has the codec
    `exact`, and codec None means that plain numbers are all-reduced: what arrives is then their sum, and a fragment
    divides it for a mean. `coded` tells that a code is exchanged: it is rounded once, and everyone receives everyone's.

    `leaves` is "code" where the fragment before it encodes into its messages, "slot" where it stores the value to
    `slot.N`; `lands` is "code" where the fragment behind it decodes its messages, "slot" where the result is put into
    `slot.N`, which is so for all that lands late, for routes other than `all`, for all-reduces, and for codecs with
    `near` and feedback. Where a codec with `near` leaves as a code, and lands in a slot or has a guard, the sending
    fragment stores what it encodes to `slot.N`: it is what the queue decodes near to, or checks with.

    `block` is the block whose run's number r is the round. `copies` counts slots: more than one where several launches
    can be under way; this iteration's is number r % copies. `after` is the block of the `after` that reads the result
    late (-1 for none), from slot number (its launch's r) % copies.

    `asynchronous` tells that this `after` is async: then `block` is it too, the round is the worker's number of
    launches so far, there is one copy, and in whatever the transfer encodes the generator's `iteration` is the
    round.
    """

    exchange: Exchange
    coded: bool
    leaves: str
    lands: str
    block: int
    copies: int
    after: int = -1
    shape: str = "tensor"
    asynchronous: bool = False

    @property
    def slotted(self) -> bool:
        """Whether it has a slot."""
        codec = self.exchange.codec
        return "slot" in (self.leaves, self.lands) or (codec is not None and codec.guard is not None)


@dataclass(frozen=True, slots=True)
class Store:
    """`target` is weight, grad, a state, kept.N or slot.N (the last three of cells or tensors). A state takes only
    finite values: element by element it keeps its old one otherwise."""

    target: str
    value: Expression


@dataclass(frozen=True, slots=True)
class Fragment:
    """One kernel. Lets in order, each seen by those behind it; all reads are of what memory held before the fragment;
    all stores happen at its end. `sends` is the transfer whose messages it makes, `value` what it encodes; `receives`
    the one whose messages it decodes: not both.

    `near` is the own value next to which a received code is decoded, where its codec asks for one. `late` names those
    of its kept.N and slot.N that are the landing launch's, not this iteration's. `measures` tells that it works on
    cells: it may take norms, stores cells only, and does nothing else.
    """

    lets: tuple[Let, ...]
    stores: tuple[Store, ...]
    sends: int | None = None
    value: Expression | None = None
    receives: int | None = None
    late: tuple[str, ...] = ()
    measures: bool = False
    near: Expression | None = None


@dataclass(frozen=True, slots=True)
class Operation:
    """`kind`: compute (fragment `number`), start (transfer `number`: its messages may leave, or its slot may be used),
    finish (wait for transfer `number`). `late` for the finish of what lands in this iteration. `why` says in words why
    it stands where it does."""

    kind: str
    number: int
    late: bool = False
    why: str = ""


STAGES = ("begin", "backward", "before", "after", "tail")
"""begin: when the previous iteration has ended, or at attach; backward: at the end of backward, before it returns;
before and after: within optimizer.step(), around the user's optimiser; tail: when weights are next needed, which is the
next forward, or whatever asks first. Begin of the next iteration follows tail."""


@dataclass(frozen=True, slots=True)
class Path:
    """What is done in an iteration where the guards have these truths. `numbers` are definitions in order, by names
    that are assigned once; `states` maps number states to the name of their last value. `steps` is whether the user's
    optimiser runs. `captures` are (block, name, value): numbers that a launch of that `after` hands to its landing,
    which reads them by that name."""

    guards: tuple[bool, ...]
    numbers: tuple[tuple[str, Expression], ...]
    states: tuple[tuple[str, str], ...]
    stages: tuple[tuple[str, tuple[Operation, ...]], ...]
    steps: bool
    captures: tuple[tuple[int, str, Expression], ...] = ()

    def stage(self, name: str) -> tuple[Operation, ...]:
        return dict(self.stages).get(name, ())


@dataclass(frozen=True, slots=True)
class Kept:
    """`shape` is tensor or cell. `after` is the block of the `after` whose launch keeps it for its landing, -1 for what
    lives within one iteration; its copy is number (the launch's run of the enclosing block) % copies."""

    shape: str
    copies: int
    after: int = -1


@dataclass(frozen=True, slots=True)
class Gradient:
    """The exchange of a body that begins with `grad = mean(grad, ...)`, or with its delayed form: the runtime carries
    it out bucket by bucket while backward runs."""

    exchange: Exchange
    delay: int


@dataclass(frozen=True, slots=True)
class PathBody:
    """`gradient` is done by the time that backward returns, and is no part of the paths. `paths` is empty where nothing
    is left but the user's step. `start` are the fragments that compute at attach the states that are no numbers, in
    order. `owns`: the number `own.N` is this worker's weight on itself in that topology, in the round of that block.
    `landings` are, for each async `after`, what it does where it lands outside of an iteration: its guard alone is true
    there."""

    selector: Selector
    gradient: Gradient | None
    states: tuple[State, ...]
    control: Control
    transfers: tuple[Transfer, ...]
    kept: tuple[Kept, ...]
    fragments: tuple[Fragment, ...]
    start: tuple[int, ...]
    paths: tuple[Path, ...]
    span: Span | None = None
    owns: tuple[tuple[Topology, int], ...] = ()
    landings: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Paths:
    bodies: tuple[PathBody, ...]


def expressions(fragment: Fragment) -> Iterator[Expression]:
    """All that a fragment computes."""
    yield from (let.value for let in fragment.lets)
    yield from (store.value for store in fragment.stores)
    yield from (e for e in (fragment.value, fragment.near) if e is not None)
