"""ir.Body -> items: takes exchanges, codes and norms out of expressions, and says what each `after` keeps of its
launch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.source import Span
from relaxc.program.ir import (
    After,
    Apply,
    Assign,
    Body,
    Constant,
    Decode,
    Encode,
    Every,
    Exchange,
    Expression,
    Let,
    Optimizer,
    Own,
    Phase,
    Read,
    Reduce,
    Statement,
    Step,
    flattened,
)  # fmt: skip
from relaxc.program.launched import launched_of
from relaxc.program.passes.items import Block, Captured, Code, Cut, Item, Launch, Measure, Sent, all_items, value_of
from relaxc.program.paths import Guard, Kept
from relaxc.program.reads import expressions, reads
from relaxc.program.shapes import GIVEN
from relaxc.topology.topology import Topology

ORDER = ("number", "cell", "tensor")
UNCHANGING = frozenset({"workers", "rank"})


@dataclass
class Normal:
    """A body in items, and what its names are. `shapes` has every name but those of codes; `lets` their definitions."""

    items: tuple[Item, ...] = ()
    guards: list[Guard] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
    owns: list[tuple[Topology, int]] = field(default_factory=list)
    shapes: dict[str, str] = field(default_factory=dict)
    lets: dict[str, Expression] = field(default_factory=dict)
    kept: list[Kept] = field(default_factory=list)

    def shape(self, e: Expression) -> str:
        match e:
            case Constant():
                return "number"
            case Read(name=name):
                return self.shapes[name]
            case Optimizer(tensor=tensor):
                return "tensor" if tensor else "number"
            case Apply(arguments=arguments):
                return max((self.shape(a) for a in arguments), key=ORDER.index)
            case Reduce():
                return "cell"
        raise TypeError(f"no shape: {e}")

    def home(self, guard: int) -> int:
        """The block that runs what stands in the block of `guard`."""
        return 0 if guard < 0 else self.guards[guard].block


def normalise(body: Body, statements: tuple[Statement, ...]) -> Normal:
    """Raise SpecError where a landing block would exchange a code of its launch."""
    return _Normaliser(body, statements).run()


def refuse(
    code: str, message: str, span: Span | None, help: str | None = None, also: Sequence[Label] = ()
) -> SpecError:
    return SpecError([Diagnostic(code, message, (Label(span), *also) if span else (), help=help)])


@dataclass
class _Where:
    """The block that is being read: its guard, how far apart its runs are at least, the names that its `after`
    defines."""

    guard: int
    apart: float
    defined: set[str]
    depth: int


def _given_shapes() -> dict[str, str]:
    return {name: str(form.shape) for name, form in GIVEN.items()}


class _Normaliser:
    def __init__(self, body: Body, statements: tuple[Statement, ...]) -> None:
        self.normal = Normal(shapes=_given_shapes() | {s.name: s.shape for s in body.states})
        self.statements = statements
        self.launched = launched_of(statements)
        self.depths: dict[str, int] = {}
        """How many `after` stand around the definition of a name."""
        self.exchanged: set[str] = set()
        """Names whose value waits for an exchange of the same iteration."""
        self.late = _read_later(statements)
        self.aliases: dict[str, str] = {}
        last = [s for s in flattened(statements) if isinstance(s, Assign) and s.name == "grad"]
        self.last_gradient = last[-1] if last else None
        self.out: list[Item] = []
        self.span: Span | None = None

    def run(self) -> Normal:
        self.normal.items = self.block(self.statements, _Where(-1, 1.0, set(), 0))
        _mark_uses(self.normal)
        return self.normal

    def block(self, statements: Iterable[Statement], where: _Where) -> tuple[Item, ...]:
        outer, self.out = self.out, []
        for statement in statements:
            self.statement(statement, where)
        made, self.out = tuple(self.out), outer
        return made

    # --- statements

    def statement(self, s: Statement, where: _Where) -> None:
        match s:
            case Let(name=name, value=Encode() as value):
                self.code(name, value, where)
            case Let(name=name, value=Read(name=other)) if other in self.normal.codes or other in self.aliases:
                self.aliases[name] = self.aliases.get(other, other)
            case Let():
                self.let(s, where)
            case Assign():
                self.out.append(replace(s, value=self.flat(s.value, where)))
                if s is self.last_gradient:
                    self.out.append(Cut())
            case Step():
                self.out.append(s)
            case Every() | Phase() | After():
                self.nested(s, where)

    def let(self, s: Let, where: _Where) -> None:
        value = self.flat(s.value, where)
        if self.waits(value, where) and s.name in self.late:
            value = self.split(s.name, value, where)
        self.define(s.name, value, where)

    def define(self, name: str, value: Expression, where: _Where) -> None:
        self.out.append(Let(name, value))
        self.normal.lets[name] = value
        self.bind(name, self.normal.shape(value), where)
        if self.waits(value, where):
            self.exchanged.add(name)

    def bind(self, name: str, shape: str, where: _Where) -> None:
        self.normal.shapes[name] = shape
        self.depths[name] = where.depth
        where.defined.add(name)

    def waits(self, e: Expression, where: _Where) -> bool:
        """Whether `e` needs an exchange that this very run of the block starts."""
        return any(n in self.exchanged and self.depths[n] == where.depth for n in reads(e))

    def split(self, name: str, e: Expression, where: _Where) -> Expression:
        """What a landing computes has of its launch only names: all parts of `e` that need no exchange get one."""
        if isinstance(e, Constant) or (reads(e) <= UNCHANGING and not isinstance(e, Optimizer | Reduce)):
            return e
        if self.waits(e, where):
            if isinstance(e, Apply):
                return replace(e, arguments=tuple(self.split(name, a, where) for a in e.arguments))
            return e
        if isinstance(e, Read) and (e.name in self.normal.lets or e.name.startswith("coded.")):
            return e
        part = f"{name}.{sum(1 for n in self.normal.lets if n.startswith(name + '.'))}"
        self.define(part, e, where)
        return Read(part)

    def nested(self, s: Every | Phase | After, where: _Where) -> None:
        number = len(self.normal.guards)
        self.normal.guards.append(self.guard(s, where))
        if isinstance(s, After) and s.asynchronous:
            self.normal.guards.append(Guard("launch", where.guard, s.block, delay=s.delay))
        if isinstance(s, After):
            inner = _Where(number, where.apart, set(), where.depth + 1)
        else:
            inner = _Where(number, where.apart * _apart(s), where.defined, where.depth)
        items = self.block(s.body, inner)
        captured = self.captured(s, items, inner.defined, where) if isinstance(s, After) else Captured()
        where.defined |= inner.defined
        self.out.append(Block(number, s, items, captured))

    def guard(self, s: Every | Phase | After, where: _Where) -> Guard:
        match s:
            case Every(block=block, how=how, period=period):
                return Guard("every", where.guard, block, how=how, period=self.flat(period, where))
            case Phase(block=block, first=first, end=end):
                return Guard("phase", where.guard, block, first=first, end=end)
            case After(block=block, delay=delay, most=most):
                return Guard("land", where.guard, block, delay=delay, most=most)

    # --- what a landing has of its launch

    def captured(self, after: After, items: tuple[Item, ...], inside: set[str], where: _Where) -> Captured:
        values = [v for item in all_items(items) if (v := value_of(item)) is not None]
        wanted = sorted({n for v in values for n in reads(v)} - inside, key=_place(self.depths))
        found = Captured()
        for item in all_items(items):
            if isinstance(item, Launch) and item.code is not None and item.code not in inside:
                code = self.normal.codes[item.code]
                help = "encode inside of the `after`, or exchange before it"
                raise refuse("RX0341", "a code is exchanged in a later iteration than it was made", code.span, help)
        for name in wanted:
            found = self.capture(name, after, found, where)
        return found

    def capture(self, name: str, after: After, found: Captured, where: _Where) -> Captured:
        if name not in self.depths or name in found.names:
            return found
        copies = 1 if after.asynchronous else int(min(after.delay + 1, after.delay // where.apart + 1))
        if self.lands(name, after, where):
            if name.startswith("exchange."):
                sent = self.normal.sent[number := int(name.split(".")[1])]
                sent.after, sent.copies = after.block, copies
                return replace(found, slots=(*found.slots, number))
            value = self.normal.lets[name]
            for read in sorted(reads(value), key=_place(self.depths)):
                found = self.capture(read, after, found, where)
            return replace(found, lets=(*found.lets, Let(name, value)))
        if self.normal.shapes[name] == "number":
            return replace(found, numbers=(*found.numbers, name))
        self.normal.kept.append(Kept(self.normal.shapes[name], copies, after.block))
        return replace(found, kept=(*found.kept, (name, len(self.normal.kept) - 1)))

    def lands(self, name: str, after: After, where: _Where) -> bool:
        """Whether what `name` needs is still under way when its launch ends: exchanges of the block that launches, each
        for one `after` only. All else is kept as a value."""
        if name not in self.exchanged or self.depths[name] != where.depth:
            return False
        if name.startswith("exchange."):
            sent = self.normal.sent[int(name.split(".")[1])]
            home = after.block if sent.asynchronous else self.normal.home(where.guard)
            return sent.block == home and sent.after in (-1, after.block)
        waited = [n for n in reads(self.normal.lets[name]) if n in self.exchanged] if name in self.normal.lets else []
        return bool(waited) and all(self.lands(n, after, where) for n in waited)

    # --- expressions

    def flat(self, e: Expression, where: _Where) -> Expression:
        match e:
            case Exchange():
                return self.exchange(e, where)
            case Decode(code=code):
                name = self.code_of(code, where)
                return Read(f"coded.{name}")
            case Reduce():
                return self.norm(e, where)
            case Own(topology=topology):
                self.normal.owns.append((topology, self.normal.home(where.guard)))
                self.bind(f"own.{len(self.normal.owns) - 1}", "number", where)
                return Read(f"own.{len(self.normal.owns) - 1}")
            case Apply(function=function, arguments=arguments):
                return Apply(function, tuple(self.flat(a, where) for a in arguments))
            case Read(name=name):
                return Read(name)
            case Optimizer(name=name, tensor=tensor):
                return Optimizer(name, tensor)
        return e

    def norm(self, e: Reduce, where: _Where) -> Expression:
        argument = self.flat(e.argument, where)
        name = f"norm.{sum(n.startswith('norm.') for n in self.normal.shapes)}"
        self.out.append(Measure(name, Reduce(e.function, argument)))
        self.bind(name, "cell", where)
        if self.waits(argument, where):
            self.exchanged.add(name)
        return Read(name)

    def code_of(self, e: Expression, where: _Where) -> str:
        if isinstance(e, Encode):
            return self.code(f"code.{len(self.normal.codes)}", e, where)
        assert isinstance(e, Read), "a code is made by encode"
        return self.aliases.get(e.name, e.name)

    def code(self, name: str, e: Encode, where: _Where) -> str:
        code = Code(name, self.flat(e.value, where), e.codec, e.place, e.span)
        self.out.append(code)
        self.normal.codes[name] = code
        where.defined.add(name)
        self.bind(f"coded.{name}", "tensor", where)
        if self.waits(code.value, where):
            self.exchanged.add(f"coded.{name}")
        return name

    def exchange(self, e: Exchange, where: _Where) -> Expression:
        code, launched = None, self.launched.exchanges.get(e.place)
        value: Expression | None = None
        if isinstance(e.value, Encode) or (isinstance(e.value, Read) and self.is_code(e.value.name)):
            code = self.code_of(e.value, where)
            made = self.normal.codes[code]
            value, e = made.value, replace(e, codec=made.codec, place=made.place, feedback="none")
        else:
            value = self.flat(e.value, where)
        number = len(self.normal.sent)
        shape = "tensor" if code is not None or self.normal.shape(value) == "tensor" else "cell"
        block = self.normal.home(where.guard) if launched is None else launched
        self.normal.sent.append(Sent(e, code, block, shape=shape, asynchronous=launched is not None))
        self.out.append(Launch(number, value if code is None else None, code))
        self.bind(f"exchange.{number}", shape, where)
        self.exchanged.add(f"exchange.{number}")
        result: Expression = Read(f"exchange.{number}")
        if e.kind == "mean" and e.codec is None and not e.rank:
            return Apply("*", (result, Apply("/", (Constant(1.0), Read("workers")))))
        return result

    def is_code(self, name: str) -> bool:
        return name in self.normal.codes or name in self.aliases


def _apart(s: Every | Phase) -> float:
    """How many runs of the enclosing block lie between two of this one, at least."""
    if isinstance(s, Every) and s.how != "geometric" and isinstance(s.period, Constant) and s.period.value >= 1:
        return float(math.ceil(min(s.period.value, 2.0**31)))
    return 1.0


def _place(depths: dict[str, int]) -> Callable[[str], int]:
    """Sorts names by where they are defined."""
    order = {name: number for number, name in enumerate(depths)}
    return lambda name: order.get(name, -1)


def _read_later(statements: Sequence[Statement]) -> set[str]:
    """Names of lets that an `after` may read of its launch, directly or through other lets."""
    found: set[str] = set()
    lets = {s.name: s.value for s in flattened(tuple(statements)) if isinstance(s, Let)}
    open_ = [
        n for s in flattened(tuple(statements)) if isinstance(s, After) for e in expressions(s.body) for n in reads(e)
    ]
    while open_:
        name = open_.pop()
        if name in lets and name not in found:
            found.add(name)
            open_.extend(reads(lets[name]))
    return found


def _mark_uses(normal: Normal) -> None:
    """Which exchanges are read in the iteration that starts them."""
    open_: set[str] = set()

    def visit(items: tuple[Item, ...], captured: frozenset[str]) -> None:
        for item in items:
            if isinstance(item, Block):
                open_.update(name for name, _ in item.captured.kept)
                visit(item.body, item.captured.names if isinstance(item.statement, After) else captured)
            elif (value := value_of(item)) is not None and not isinstance(item, Let):
                open_.update(reads(value) - captured)
            elif isinstance(item, Let):
                inner[item.name] = reads(item.value) - captured

    inner: dict[str, frozenset[str]] = {}
    visit(normal.items, frozenset())
    seen: set[str] = set()
    while open_:
        name = open_.pop()
        if name not in seen:
            seen.add(name)
            open_ |= inner.get(name, frozenset())
    for number, sent in enumerate(normal.sent):
        sent.now = f"exchange.{number}" in seen
