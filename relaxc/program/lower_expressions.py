"""Expressions of an algorithm: syntax -> IR, arguments put in, constants folded, encoding places numbered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.diagnostics import SpecError
from relaxc.language.functions import ELEMENTWISE
from relaxc.language.low_rank import rank_of
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Async, CodecUse, Feedback, Use
from relaxc.language.vocabulary import AUTO, READABLE
from relaxc.program import optimizer_names
from relaxc.program.codec import EXACT, lower_codec
from relaxc.program.ir import (
    Apply,
    Codec,
    Constant,
    Decode,
    Encode,
    Exchange,
    Expression,
    Optimizer,
    Own,
    Read,
    Reduce,
)  # fmt: skip
from relaxc.program.lower_low_rank import low_rank, refuse_low_rank
from relaxc.topology.topology import Topology
from relaxc.wire.numbers import evaluate
from relaxc.wire.routes import DEFAULT_ROUTE, GATHER, NEIGHBOURLY

PLACES_PER_EXCHANGE = 2
"""A contribution's place and, behind it, its re-encoding's."""

SITES = {"compress": "codec", "feedback": "feedback", "route": "route"}
"""What the knobs of an exchange take, as Reader names it."""

HOLE = Constant(math.nan)
"""Stands for what can't be lowered; the report says why."""


@dataclass(slots=True)
class Places:
    """Numbers the encoding places of a program, in the order in which they leave."""

    used: int = 0

    def next(self) -> int:
        self.used += PLACES_PER_EXCHANGE
        return self.used - PLACES_PER_EXCHANGE


@dataclass(slots=True)
class Codecs:
    """Lowered codecs, each once: statements with the same codec share it, and its mistakes are reported once."""

    report: Report
    made: dict[tuple[int, object], Codec | None] = field(default_factory=dict)

    def lowered(self, use: CodecUse) -> Codec | None:
        if rank_of(use):
            return None  # no code of blocks: lower_low_rank.py says where it can stand
        key = id(use.definition), use.arguments
        if key not in self.made:
            self.made[key] = self._lower(use)
        return self.made[key]

    def _lower(self, use: CodecUse) -> Codec | None:
        try:
            return lower_codec(use)
        except SpecError as error:
            self.report.errors += [d for d in error.diagnostics if d not in self.report.errors]
            return None


@dataclass(slots=True)
class LocalNames:
    """States and lets by the names that the text gives them. Names in a body are unique: a second let of one name, in
    another block, gets a number."""

    block: dict[str, str] = field(default_factory=dict)
    outer: LocalNames | None = None
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys((*READABLE, "arrived", "coded", "own_coded", "residual"), 1)
    )

    def inner(self) -> LocalNames:
        return LocalNames({}, self, self.counts)

    def find(self, name: str) -> str | None:
        scope: LocalNames | None = self
        while scope is not None:
            if name in scope.block:
                return scope.block[name]
            scope = scope.outer
        return None

    def bind(self, name: str) -> str:
        self.block[name] = self.fresh(name)
        return self.block[name]

    def fresh(self, name: str) -> str:
        """A name that the body has nowhere else."""
        unique = name
        while unique in self.counts:
            self.counts[name] = self.counts.get(name, 1) + 1
            unique = f"{name}_{self.counts[name]}"
        self.counts[unique] = 1
        return unique


@dataclass(slots=True)
class Late:
    """A `delay(e, k)` that was met: `name` stands for the value of e at launch."""

    name: str
    value: Expression
    delay: int | Async
    span: Span


class Expressions:
    """Lowers the expressions of one use. `names` is the scope, which whoever lowers statements sets."""

    def __init__(self, use: Use, places: Places, codecs: Codecs, report: Report) -> None:
        self.use, self.places, self.codecs, self.report = use, places, codecs, report
        self.reader = Reader.of(use, report)
        self.names = LocalNames()
        self.codes: set[str] = set()
        """The lets that are codes."""
        self.late: list[Late] = []
        """The delays met since somebody took them."""
        self.arguments = {argument.name: argument.span for argument in use.arguments}
        self.foreign = use.definition.span.source is not use.span.source

    def place_of(self, node: syntax.Node) -> Span:
        """Where the user wrote it: for a definition of the library, the clause that it names, or the statement."""
        if not self.foreign:
            return node.span
        return self.clause_of(node) or self.use.span.first_line

    def clause_of(self, node: object) -> Span | None:
        """The first argument that an expression names, where a clause of the statement gives it."""
        for name in named(node):
            span = self.arguments.get(name)
            if span is not None and span.source is self.use.span.source:
                return span
        return None

    # --- kinds of values

    def initial(self, e: syntax.Expression | None) -> Expression:
        return Constant(0.0) if e is None else self.expression(e)

    def expression(self, e: syntax.Expression) -> Expression:
        match e:
            case syntax.Number() | syntax.Quantity():
                value = self.reader.number(e)
                return HOLE if value is None else Constant(float(value))
            case syntax.Name():
                return self.name(e)
            case syntax.Member():
                return self.optimizer(e)
            case syntax.Unary(operator=operator, operand=operand):
                return self.apply("neg" if operator == "-" else operator, (operand,), e)
            case syntax.Binary(operator=operator, left=left, right=right):
                return self.apply(operator, (left, right), e)
            case syntax.Call(function=function, arguments=arguments) if function in ELEMENTWISE:
                return self.apply(function, arguments, e)
            case syntax.Call():
                return self.call(e)
        self.report.error("RX0209", "text is no value of an algorithm", e.span)
        return HOLE

    def name(self, e: syntax.Name) -> Expression:
        local = self.names.find(e.name)
        if local is not None:
            return Read(local, self.place_of(e))
        if e.name in READABLE:
            return Read(e.name, self.place_of(e))
        value = self.reader.named(e.name)
        if value is not None:
            return Constant(float(value))
        self.report.error("RX0209", f"`{e.name}` is not a number", self.place_of(e), "can't be computed with")
        return HOLE

    def optimizer(self, e: syntax.Member) -> Expression:
        if (meant := optimizer_names.doubt(e.name)) is not None:
            self.report.warn("RX0333", f"no optimiser of torch has `{e.name}`", self.place_of(e), "", meant)
        return Optimizer(e.name, e.name in optimizer_names.STATES, self.place_of(e))

    def apply(self, function: str, arguments: tuple[syntax.Expression, ...], e: syntax.Expression) -> Expression:
        return self.folded(function, tuple(map(self.expression, arguments)), e)

    def folded(self, function: str, arguments: tuple[Expression, ...], e: syntax.Expression) -> Expression:
        """Apply, done at once in f64 where all arguments are constants."""
        if function == "/" and arguments[1] == Constant(0.0):
            self.report.error("RX0208", "division by zero", self.place_of(e))
            return HOLE
        values = [a.value for a in arguments if isinstance(a, Constant)]
        if len(values) < len(arguments):
            return Apply(function, arguments, self.place_of(e))
        result = evaluate((function, *values), {})
        if not math.isfinite(result) and all(map(math.isfinite, values)):
            self.report.error("RX0208", "no finite value", self.place_of(e))
        return Constant(result)

    def call(self, e: syntax.Call) -> Expression:
        match e.function:
            case "mean" | "sum" | "mix" | "push" | "relay":
                return self.exchange(e)
            case "encode":
                return self.encode(e)
            case "decode":
                return Decode(self.expression(e.arguments[0]), self.place_of(e))
            case "own":
                topology = self.topology(e.arguments[0])
                return HOLE if topology is None else Own(topology, self.place_of(e))
            case "norm":
                return Reduce("norm", self.expression(e.arguments[0]), self.place_of(e))
            case "delay":
                return self.delay(e)
        raise AssertionError(f"check lets no {e.function} pass")

    def topology(self, e: syntax.Expression) -> Topology | None:
        return self.reader.topology(e)

    # --- codes and exchanges

    def encode(self, e: syntax.Call) -> Expression:
        value = self.expression(e.arguments[0])
        codec = self.codec(e.arguments[1])
        return HOLE if codec is None else Encode(value, codec, self.places.next(), self.place_of(e))

    def codec(self, e: syntax.Expression) -> Codec | None:
        """The codec of `encode`, where `none` is the exact one."""
        before = len(self.report.errors)
        use = self.reader.codec(e)
        if use is not None and rank_of(use):
            refuse_low_rank(self, e, "a code of low rank")
            return None
        if use is not None:
            return self.codecs.lowered(use)
        return None if len(self.report.errors) > before else EXACT

    def exchange(self, e: syntax.Call) -> Expression:
        value = self.expression(e.arguments[0])
        topology = self.topology(e.arguments[1]) if e.function in NEIGHBOURLY else None
        if e.function in NEIGHBOURLY and topology is None:
            return HOLE
        given = {keyword.name: keyword.value for keyword in e.keywords}
        if self.is_code(value):
            self.of_a_code(e, given)
            route = "" if e.function in NEIGHBOURLY else DEFAULT_ROUTE
            return Exchange(e.function, value, None, "none", route, topology, self.places.next(), self.place_of(e))
        return self.coded(e, value, topology, given)

    def coded(
        self,
        e: syntax.Call,
        value: Expression,
        topology: Topology | None,
        given: Mapping[str, syntax.Expression],
    ) -> Expression:
        use = self.reader.codec(given["compress"]) if "compress" in given else None
        if use is not None and rank_of(use):
            return low_rank(self, e, value, given, use) or HOLE
        codec = None if use is None else self.codecs.lowered(use)
        feedback = self.feedback(given.get("feedback"), codec, e, "compress" in given)
        route = self.route(given.get("route"), codec, e)
        if route == GATHER and feedback == "both":
            feedback = "worker"  # nobody encodes again
        if codec is None and (e.function in NEIGHBOURLY or route != DEFAULT_ROUTE):
            codec = EXACT
        return Exchange(e.function, value, codec, feedback, route, topology, self.places.next(), self.place_of(e))

    def is_code(self, value: Expression) -> bool:
        return isinstance(value, Encode) or (isinstance(value, Read) and value.name in self.codes)

    def of_a_code(self, e: syntax.Call, given: Mapping[str, syntax.Expression]) -> None:
        """A code is sent as it is: knobs may only say so."""
        for name, value in given.items():
            meaning = self.reader.value(SITES[name], value)
            if meaning not in (None, Feedback.AUTO, Feedback.NONE, AUTO, DEFAULT_ROUTE, GATHER):
                help_ = f"delete it, or exchange the value itself: {e.function}(x, {name} = ...)"
                what = f"`{name}` has no meaning for a code, which is sent as it is"
                self.report.error("RX0322", what, self.place_of(value), "", help_)

    def feedback(self, e: syntax.Expression | None, codec: Codec | None, call: syntax.Call, coded: bool) -> str:
        written = Feedback.AUTO if e is None else self.reader.feedback(e) or Feedback.AUTO
        if codec is None and e is not None and not coded and written not in (Feedback.NONE, Feedback.AUTO):
            self.report.warn("RX0303", "feedback has no effect here", self.place_of(call),
                             "nothing is lost without a codec", "add `compress`, or delete it")  # fmt: skip
        return "none" if codec is None else feedback_of(written, codec)

    def route(self, e: syntax.Expression | None, codec: Codec | None, call: syntax.Call) -> str:
        """Where nothing is written: gather for a codec that holds the largest of a block, since a sum of those is not
        encoded again."""
        if call.function in NEIGHBOURLY:
            return ""
        written = AUTO if e is None else self.reader.route(e) or AUTO
        selects = codec is not None and codec.selects
        if written in (AUTO, GATHER) or not selects:
            return written if written != AUTO else GATHER if selects else DEFAULT_ROUTE
        assert codec is not None
        self.report.error(
            "RX0356", f"the route {written} encodes sums again, which {codec.text} can't", self.place_of(call),
            "a sum of such codes has more large elements than one of them", "use route = gather, or leave it out",
        )  # fmt: skip
        return GATHER

    # --- lateness

    def delay(self, e: syntax.Call) -> Expression:
        """The value of `e` some iterations ago: the statement that it stands in becomes an `after`."""
        value = self.expression(e.arguments[0])
        delay = self.reader.delay(e.arguments[1])
        if not delay:
            return value
        name = self.names.fresh("fresh")
        self.late.append(Late(name, value, delay, self.place_of(e)))
        return Read(name, self.place_of(e))


def feedback_of(written: Feedback, codec: Codec) -> str:
    """`auto` keeps what a biased codec loses; casts and noise that averages out lose nothing
    that is worth the memory."""
    if written is not Feedback.AUTO:
        return str(written)
    return "both" if codec.biased else "none"


def named(node: object) -> list[str]:
    """The names in an expression or header, left to right."""
    match node:
        case syntax.Name(name=name):
            return [name]
        case syntax.Unary(operand=operand):
            return named(operand)
        case syntax.Binary(left=left, right=right):
            return named(left) + named(right)
        case syntax.Call(arguments=arguments, keywords=keywords):
            return [name for part in (*arguments, *(k.value for k in keywords)) for name in named(part)]
        case syntax.Keyword(value=part) | syntax.Every(period=part) | syntax.After(delay=part):
            return named(part)
        case syntax.Let(value=part) | syntax.Assign(value=part):
            return named(part)
    return []
