"""The body of a codec that a file defines: its statements, names and functions.

What depends on the codec's arguments, and what a receiver can know, is for program/codec.py to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxc.language import syntax
from relaxc.language.codecs import WIDEST
from relaxc.language.diagnostics import Label
from relaxc.language.functions import FUNCTIONS, REDUCTIONS, Where, arity, many
from relaxc.language.names import parts
from relaxc.language.places import name_span, parameter_spans
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.vocabulary import BLOCK_UNITS, BUILT_IN, CHOSEN, ROUNDINGS, TOP
from relaxc.language.words import clipped, did_you_mean, listed

WIRES = ("f32", "f16", "bf16", "real")
INTEGERS = ("uint", "int")

SEES = "a codec sees x, index and its parameters, and in `receive near y` the receiver's own value, y"


@dataclass(slots=True)
class Entry:
    """A name of the body. `what` is parameter, let, field, input or own value."""

    what: str
    span: Span
    read: bool = False


def check_codec(definition: syntax.Codec, report: Report) -> None:
    """Reports what is wrong with the body whatever its arguments."""
    _Codec(definition, report).check()


@dataclass(slots=True)
class _Codec:
    definition: syntax.Codec
    report: Report
    entries: dict[str, Entry] = field(default_factory=dict)
    has_per: bool = False
    received: bool = False
    """Whether `receive` stands above: what follows is the receiver's."""

    def check(self) -> None:
        parameters = self.definition.parameters
        spans = parameter_spans(parameters)
        self.entries = {p.name: Entry("parameter", span) for p, span in zip(parameters, spans, strict=True)}
        self.entries["x"] = Entry("input", self.definition.span)
        self.entries["index"] = Entry("input", self.definition.span)
        before = self.report.mistakes
        self.whole()
        for statement in self.definition.body:
            self.statement(statement)
        if self.report.mistakes == before:
            self.unread()

    def whole(self) -> None:
        body, span = self.definition.body, name_span(self.definition, "codec")
        shown = f"the codec `{clipped(self.definition.name)}`"
        receives = [s for s in body if isinstance(s, syntax.Receive)]
        if not receives:
            self.report.error("RX0230", f"{shown} has no `receive`", span, help="say what is decoded: receive = ...")
        if not any(isinstance(s, syntax.Send) for s in body):
            self.report.error("RX0230", f"{shown} sends nothing", span, help="write send level: uint(8) = ...")
        self.once(receives, "receive")
        self.once([s for s in body if isinstance(s, syntax.Per)], "per")
        guards = [s for s in body if isinstance(s, syntax.Guard)]
        self.once(guards, "guard")
        if receives:
            self.behind(body[body.index(receives[-1]) + 1 :], bool(guards))
        for state in [s for s in body if isinstance(s, syntax.State) and not guards]:
            self.report.error("RX0368", "a state in a codec without a guard", state.span, "nothing would change it",
                              "write a guard, or a number in its place")  # fmt: skip
        for guard in guards:
            self.guarded(guard, any(s.near is not None for s in receives))

    def behind(self, rest: tuple[syntax.CodecStatement, ...], guarded: bool) -> None:
        """Behind `receive` there is a guard and the lets that it reads, or nothing."""
        if rest and not guarded:
            self.report.error("RX0230", "a statement behind `receive`", rest[-1].span, "", "write `receive` last")
        elif guarded and not any(isinstance(s, syntax.Guard) for s in rest):
            last = self.definition.body[-1]
            self.report.error("RX0230", "a statement behind `guard`", last.span, "", "write `guard` behind `receive`")
        for s in rest if guarded else ():
            if not isinstance(s, syntax.Let | syntax.Guard | syntax.Assign):
                self.report.error("RX0230", "a statement behind `receive`", s.span, "",
                                  "only `let`, `guard` and new values of states stand there")  # fmt: skip

    def guarded(self, guard: syntax.Guard, near: bool) -> None:
        if not near:
            self.report.error("RX0367", "a guard in a codec that decodes without a value of one's own", guard.span, "",
                              "write `receive near y = ...`, or leave the guard out")  # fmt: skip
        if not any(isinstance(s, syntax.Per) for s in self.definition.body):
            self.report.error("RX0230", "nothing says what the guard reaches over", guard.span,
                              help="begin with per block(512) or per tensor")  # fmt: skip

    def once(self, found: list[syntax.Receive] | list[syntax.Per] | list[syntax.Guard], word: str) -> None:
        for again in found[1:]:
            first = Label(found[0].span, "the first")
            self.report.error("RX0230", f"a second `{word}`", again.span, "", "delete one of the two", [first])

    def unread(self) -> None:
        for name, entry in self.entries.items():
            if entry.what != "input" and not entry.read:
                self.report.warn("RX0110", f"the {entry.what} `{name}` is never used", entry.span, help="delete it")

    # --- statements

    def statement(self, s: syntax.CodecStatement) -> None:
        match s:
            case syntax.Per():
                self.per(s)
            case syntax.Let():
                self.expression(s.value)
                if self.received:
                    self.without_input(s.value)
                self.define(s, "let", "let")
            case syntax.Send():
                self.expression(s.value)
                self.wire(s.wire)
                self.define(s, "send", "field")
            case syntax.Receive():
                self.receive(s)
                self.received = True
            case syntax.Guard():
                self.expression(s.value)
                self.without_input(s.value)
            case syntax.State():
                if s.value is not None:
                    self.constant(s.value)
                self.define(s, "state", "state")
            case syntax.Assign():
                self.assign(s)

    def per(self, s: syntax.Per) -> None:
        if any(entry.what in ("let", "field", "state") for entry in self.entries.values()):
            self.report.error("RX0230", "`per` behind other statements", s.span, help="write it first")
        self.has_per = True
        if s.unit not in BLOCK_UNITS:
            help_ = did_you_mean(s.unit, BLOCK_UNITS) or "write per block(512), per tensor or per chunk"
            self.report.error("RX0230", f"no unit `{clipped(s.unit)}`", s.span, help=help_)
        elif s.unit == "block" and s.size is None:
            self.report.error("RX0230", "a block without a size", s.span, help="write per block(512)")
        elif s.unit != "block" and s.size is not None:
            self.report.error("RX0230", f"`per {s.unit}` has no size", s.size.span, help=f"write per {s.unit}")
        if s.size is not None:
            self.constant(s.size)

    def wire(self, wire: syntax.Wire) -> None:
        if wire.name in INTEGERS:
            self.width(wire)
        elif wire.name == TOP:
            self.top(wire)
        elif wire.name not in WIRES:
            known = "use f32, f16, bf16, real, uint(n), int(n) or top(part)"
            help_ = did_you_mean(wire.name, (*WIRES, *INTEGERS, TOP)) or known
            self.report.error("RX0232", f"no type `{clipped(wire.name)}` of a field", wire.span, help=help_)
        elif wire.width is not None:
            self.report.error("RX0232", f"{wire.name} has a width of its own", wire.span, help=f"write {wire.name}")

    def width(self, wire: syntax.Wire) -> None:
        if wire.width is None:
            self.report.error("RX0232", f"{wire.name} without a width", wire.span, help=f"write {wire.name}(8)")
            return
        self.constant(wire.width)
        if isinstance(wire.width, syntax.Number | syntax.Quantity):
            bits = wire.width.value
            if not bits.is_integer() or not 1 <= bits <= WIDEST:
                message = f"a field of {clipped(wire.width.span.text)} bits"
                self.report.error(
                    "RX0232",
                    message,
                    wire.span,
                    f"a field has 1 to {WIDEST} bits",
                    "use fewer bits, or a type such as f32",
                )

    def top(self, wire: syntax.Wire) -> None:
        if wire.width is None:
            self.report.error("RX0236", "top without a part", wire.span, help="write top(1%), or a count: top(32)")
        else:
            self.constant(wire.width)
        if not self.has_per:
            self.has_per = True  # say it once
            self.report.error("RX0230", "nothing says what top reaches over", wire.span, help="begin with per tensor")

    def receive(self, s: syntax.Receive) -> None:
        if s.near is not None:
            start = s.span.source.text.index(s.near, s.span.source.text.index("near", s.span.start) + len("near"))
            span = Span(s.span.source, start, start + len(s.near))
            self.new(s.near, span, "own value")
        self.expression(s.value)
        self.without_input(s.value)

    def assign(self, s: syntax.Assign) -> None:
        entry = self.entries.get(s.name)
        if entry is None or entry.what != "state" or s.operator != "=" or not self.received:
            help_ = "behind `receive` a state of the codec gets a new value: state reach = 0 ... reach = ..."
            self.report.error("RX0230", "not a statement of a codec here", s.span, "", help_)
        self.expression(s.value)
        self.without_input(s.value)

    def without_input(self, e: syntax.Expression) -> None:
        for part in parts(e):
            if isinstance(part, syntax.Name) and part.name == "x":
                help_ = "it has what was sent, and parameters; its own value is `y` in `receive near y`"
                self.report.error("RX0234", "the receiver has no `x`", part.span, help=help_)

    def define(self, s: syntax.Let | syntax.Send | syntax.State, keyword: str, what: str) -> None:
        self.new(s.name, name_span(s, keyword), what)

    def new(self, name: str, span: Span, what: str) -> None:
        """A field may have the name of a let above it: from there on, it is what the receiver has."""
        entry = self.entries.get(name)
        if name in BUILT_IN:
            self.report.error("RX0104", f"`{name}` is a word of the language", span, f"can't be the name of a {what}",
                              "choose another name")  # fmt: skip
        elif entry is not None and (entry.what, what) != ("let", "field"):
            first = Label(entry.span, f"the {entry.what} is here")
            self.report.error("RX0106", f"`{clipped(name)}` is defined twice", span, "defined again",
                              "choose another name", [first])  # fmt: skip
        self.entries[name] = Entry(what, span)

    # --- expressions

    def constant(self, e: syntax.Expression) -> None:
        """A width or block size: numbers and parameters."""
        for part in parts(e):
            if isinstance(part, syntax.Name) and part.name in self.entries:
                entry = self.entries[part.name]
                if entry.what not in ("parameter", "let"):
                    self.report.error("RX0232", f"`{part.name}` is not a constant", part.span, f"a {entry.what}",
                                      "use numbers and parameters of the codec")  # fmt: skip
        self.expression(e)

    def expression(self, e: syntax.Expression) -> None:
        words = set(self.words(e))
        for part in parts(e):
            match part:
                case syntax.Name() if id(part) not in words:
                    self.name(part)
                case syntax.Call():
                    self.call(part)
                case syntax.String() | syntax.Member():
                    self.report.error(
                        "RX0231", "not a value of a codec", part.span, help="use x, lets, fields, parameters"
                    )
                case syntax.Quantity(unit=unit) if unit not in ("%", "bit"):
                    self.report.error("RX0231", "not a plain number", part.span, "can't be computed with")

    def words(self, e: syntax.Expression) -> Iterator[int]:
        """The names of roundings, which are no values."""
        for part in parts(e):
            if isinstance(part, syntax.Call) and part.function == "round" and len(part.arguments) == 2:
                mode = part.arguments[1]
                if isinstance(mode, syntax.Name) and mode.name in ROUNDINGS:
                    yield id(mode)

    def name(self, e: syntax.Name) -> None:
        entry = self.entries.get(e.name)
        if entry is not None:
            entry.read = True
        elif e.name == CHOSEN and not self.has_per:
            self.report.error("RX0237", "one is chosen of each block", e.span, "", "begin with per block(100)")
        elif e.name != CHOSEN:
            self.report.error("RX0231", f"no name `{clipped(e.name)}` in this codec", e.span, "",
                              did_you_mean(e.name, self.entries) or SEES)  # fmt: skip

    def call(self, e: syntax.Call) -> None:
        span = Span(e.span.source, e.span.start, e.span.start + len(e.function))
        takes = arity(e.function, Where.CODEC) if e.function in FUNCTIONS else None
        if takes is None:
            known = [name for name in FUNCTIONS if arity(name, Where.CODEC)]
            self.report.error("RX0233", f"no function `{clipped(e.function)}` in a codec", span, "",
                              did_you_mean(e.function, known) or f"functions are {listed(known, 'and')}")  # fmt: skip
        elif not takes[0] <= len(e.arguments) <= takes[1]:
            self.report.error("RX0233", f"`{e.function}` takes {many(*takes)}", e.span, f"{len(e.arguments)} given")
        elif e.keywords:
            self.report.error("RX0233", f"`{e.function}` takes no arguments by name", e.keywords[0].span,
                              help="write the value alone")  # fmt: skip
        elif e.function in REDUCTIONS and len(e.arguments) == 1 and not self.has_per:
            self.has_per = True  # say it once
            self.report.error("RX0230", f"nothing says what {e.function} reaches over", span,
                              help="begin with per block(512), per tensor or per chunk")  # fmt: skip
