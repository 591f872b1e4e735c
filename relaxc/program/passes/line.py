"""One combination of truths: the body as a straight line, every value named once.

A value is a name. `Line.defined` holds those that are computed from others; the rest come from outside: what memory
holds when the iteration begins (`weight`, a state), what the optimiser or the user leaves (`weight@step`, `grad@cut`),
exchanges, codes, norms, and what a launch has kept (`late.kept.N`, `late.slot.N`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxc.language.source import Span
from relaxc.program.ir import After, Apply, Assign, Constant, Expression, Let, Optimizer, Read, Reduce, Step, within
from relaxc.program.passes.items import Block, Code, Cut, Item, Launch, Measure, all_items
from relaxc.program.passes.normal import Normal
from relaxc.program.paths import FINITE, STORED
from relaxc.program.reads import reads

LARGEST = sys.float_info.max
STEPPED, RETURNED = "@step", "@cut"


@dataclass(frozen=True, slots=True)
class Assigned:
    """Memory `name` takes `value`."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Leaves:
    """Exchange `number` of `value`, or of `code`, into which `value` was put."""

    number: int
    value: str
    code: str | None


@dataclass(frozen=True, slots=True)
class Keeps:
    """A launch puts `value` into kept.`number`, for its landing; `block` is the launched one."""

    number: int
    value: str
    block: int


@dataclass(frozen=True, slots=True)
class Lands:
    """The block of an `after` begins; what of its launch is still under way is waited for."""

    block: int
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Stepped:
    pass


@dataclass(frozen=True, slots=True)
class Returned:
    """The cut."""


Event = Assigned | Leaves | Keeps | Lands | Stepped | Returned


@dataclass
class Line:
    """`norms` are Reduces by the name of their cell; `order` has these and what is `defined` in the order of the text.
    `codes`: what was put into a code. `shapes` of values that are no numbers."""

    events: list[Event] = field(default_factory=list)
    defined: dict[str, Expression] = field(default_factory=dict)
    norms: dict[str, Expression] = field(default_factory=dict)
    order: list[str] = field(default_factory=list)
    codes: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, str] = field(default_factory=dict)
    numbers: dict[str, Expression] = field(default_factory=dict)
    last: dict[str, str] = field(default_factory=dict)
    captures: list[tuple[int, str, Expression]] = field(default_factory=list)
    steps: bool = False
    spans: dict[str, Span | None] = field(default_factory=dict)
    """Of codes."""

    def values(self, e: Expression) -> frozenset[str]:
        """The tensors and cells that `e` reads."""
        return frozenset(n for n in reads(e) if n in self.shapes)

    def closure(self, name: str) -> Iterator[str]:
        """`name` and all that it is made of."""
        open_, seen = [name], {name}
        while open_:
            yield (value := open_.pop())
            e = self.defined.get(value) or self.norms.get(value)
            new = self.values(e) - seen if e is not None else set()
            seen |= new
            open_.extend(sorted(new))

    def number_closure(self, name: str) -> set[str]:
        """The names of numbers, given ones included, behind the numbers that value `name` is made of."""
        made = [self.defined.get(v) or self.norms.get(v) for v in self.closure(name)]
        open_ = [n for e in made if e is not None for n in number_reads(e) if n not in self.shapes]
        seen: set[str] = set()
        while open_:
            number = open_.pop()
            if number not in seen:
                seen.add(number)
                open_ += number_reads(self.numbers[number]) if number in self.numbers else []
        return seen


def number_reads(e: Expression) -> list[str]:
    settings = [f"optimizer.{p.name}" for p in within(e) if isinstance(p, Optimizer)]
    return settings + list(reads(e))


class Names:
    """Names for numbers that are no name of their own, the same for the same expression in all paths of a body."""

    def __init__(self) -> None:
        self.known: dict[Expression, str] = {}

    def name(self, e: Expression) -> str:
        return self.known.setdefault(e, f"number.{len(self.known)}")


class Specialiser:
    def __init__(self, normal: Normal, truths: tuple[bool, ...], names: Names) -> None:
        self.normal, self.truths, self.names = normal, truths, names
        self.line = Line()
        self.now = {name: name for name in normal.shapes}
        """The value that each name has; what memory holds goes by its own name at first."""
        self.versions: dict[str, int] = {}
        self.present = True
        """Whether there is a gradient to step with."""
        self.line.shapes = {n: s for n, s in normal.shapes.items() if s != "number"}

    def run(self) -> Line:
        self.block(self.normal.items)
        return self.line

    def block(self, items: tuple[Item, ...]) -> None:
        for item in items:
            self.item(item)

    def item(self, item: Item) -> None:
        line = self.line
        match item:
            case Let(name=name, value=value):
                self.let(name, name, value)
            case Assign():
                self.assign(item)
            case Step() if self.present:
                line.events.append(Stepped())
                line.steps = True
                self.version("weight", f"weight{STEPPED}")
            case Cut():
                line.events.append(Returned())
                self.version("grad", f"grad{RETURNED}")
            case Measure(name=name, value=value):
                line.norms[name] = self.convert(value)
                line.order.append(name)
            case Code(name=name, value=value):
                line.spans[name] = item.span
                line.codes[name] = self.value(f"{name}@value", value)
            case Launch(number=number, code=str(code)):
                line.events.append(Leaves(number, line.codes[code], code))
            case Launch(number=number, value=value) if value is not None:
                shape = self.normal.shapes[f"exchange.{number}"]
                line.events.append(Leaves(number, self.value(f"exchange.{number}@value", value, shape), None))
            case Block():
                self.nested(item)

    def version(self, name: str, value: str) -> None:
        self.now[name] = value
        self.line.shapes[value] = "tensor"

    def let(self, name: str, value_name: str, e: Expression) -> None:
        if self.normal.shapes[name] == "number":
            self.line.numbers[value_name] = self.renamed(e)
        else:
            value_name = self.value(value_name, e, self.normal.shapes[name])
        self.now[name] = value_name

    def define(self, name: str, e: Expression, shape: str) -> None:
        self.line.defined[name] = e
        self.line.order.append(name)
        self.line.shapes[name] = shape

    def value(self, name: str, e: Expression, shape: str = "tensor") -> str:
        """The name of the value of `e`: its own, or `name`."""
        converted = self.convert(e)
        if isinstance(converted, Read) and converted.name in self.line.shapes:
            return converted.name
        self.define(name, converted, shape)
        return name

    def assign(self, item: Assign) -> None:
        name, old = item.name, self.now[item.name]
        self.present = self.present or name == "grad"
        self.versions[name] = self.versions.get(name, 0) + 1
        new = f"{name}@{self.versions[name]}"
        shape = self.normal.shapes[name]
        if shape == "number":
            self.line.numbers[new] = _finite_number(self.renamed(item.value), Read(old))
            self.line.last[name] = new
        else:
            self.define(new, self.held(name, old, self.convert(item.value)), shape)
            self.line.events.append(Assigned(name, new))
        self.now[name] = new

    def held(self, name: str, old: str, new: Expression) -> Expression:
        """What memory then holds."""
        if name not in ("weight", "grad"):
            return new if isinstance(new, Constant) and abs(new.value) <= LARGEST else Apply(FINITE, (new, Read(old)))
        return Apply(STORED, (new,))

    # --- blocks

    def nested(self, block: Block) -> None:
        if isinstance(block.statement, After):
            launches = self.runs(self.normal.guards[block.guard].parent)
            if launches:
                self.launch(block)
            if self.truths[block.guard]:
                self.land(block)
            else:
                self.skip(block, no_gradient=launches and _gives_gradient(block))
        elif self.truths[block.guard]:
            self.block(block.body)
        else:
            self.skip(block)

    def skip(self, block: Block, no_gradient: bool = False) -> None:
        """A block that does not run: what was launched there may land, and the cut stays where it is. With
        `no_gradient` one has been launched and none has landed: there is nothing to step with."""
        cut = self.idle(block)
        if no_gradient:
            self.assign(Assign("grad", Constant(0.0)))
            self.present = False
        if cut:
            self.item(Cut())

    def runs(self, guard: int) -> bool:
        return guard < 0 or self.truths[guard]

    def idle(self, block: Block) -> bool:
        """Whether the cut is in there."""
        cut = False
        for item in block.body:
            match item:
                case Cut():
                    cut = True
                case Block(statement=After()) if self.truths[item.guard]:
                    self.land(item)
                case Block():
                    cut = self.idle(item) or cut
        return cut

    def launch(self, block: Block) -> None:
        number = self.normal.guards[block.guard].block
        for name in block.captured.numbers:
            self.line.captures.append((number, f"late.{name}", Read(self.now[name])))
        for name, kept in block.captured.kept:
            self.line.events.append(Keeps(kept, self.now[name], number))

    def land(self, block: Block) -> None:
        outer, captured = dict(self.now), block.captured
        number = self.normal.guards[block.guard].block
        self.line.events.append(Lands(number, tuple(s for s in captured.slots if not self.normal.sent[s].now)))
        for name in captured.numbers:
            self.now[name] = f"late.{name}"
        for name, kept in captured.kept:
            self.bring(name, f"late.kept.{kept}")
        for slot in captured.slots:
            self.bring(f"exchange.{slot}", f"late.slot.{slot}")
        for let in captured.lets:
            self.let(let.name, f"late.{let.name}", let.value)
        self.block(block.body)
        for name in captured.names:
            self.now[name] = outer[name]

    def bring(self, name: str, value: str) -> None:
        self.now[name] = value
        self.line.shapes[value] = self.normal.shapes[name]

    # --- expressions

    def convert(self, e: Expression) -> Expression:
        """`e` over values; where it is no number itself, the largest parts that are numbers become names."""
        if self.normal.shape(e) == "number":
            return self.number(e)
        match e:
            case Read(name=name):
                return Read(self.now[name])
            case Optimizer(name=name):
                return Read(self.optimizer(name))
            case Apply(function=function, arguments=arguments):
                return Apply(function, tuple(map(self.convert, arguments)))
            case Reduce(function=function, argument=argument):
                return Reduce(function, self.convert(argument))
        raise TypeError(f"no arithmetic: {e}")

    def optimizer(self, name: str) -> str:
        """The optimiser's own state: another one once it has stepped."""
        value = f"optimizer.{name}{STEPPED if self.line.steps else ''}"
        self.line.shapes[value] = "tensor"
        return value

    def number(self, e: Expression) -> Expression:
        """A number over the numbers of this line; with a name of its own unless it stands alone already."""
        made = self.renamed(e)
        if isinstance(made, Constant | Read):
            return made
        name = self.names.name(made)
        self.line.numbers.setdefault(name, made)
        return Read(name)

    def renamed(self, e: Expression) -> Expression:
        match e:
            case Read(name=name):
                return Read(self.now[name])
            case Apply(function=function, arguments=arguments):
                return Apply(function, tuple(self.renamed(a) for a in arguments))
        return e


def _gives_gradient(block: Block) -> bool:
    return any(isinstance(item, Assign) and item.name == "grad" for item in all_items(block.body))


def _finite_number(new: Expression, old: Expression) -> Expression:
    """No state ever becomes non-finite."""
    if isinstance(new, Constant) and abs(new.value) <= LARGEST:
        return new
    size = Apply("abs", (new,))
    return Apply("where", (Apply("<=", (size, Constant(LARGEST))), new, old))
