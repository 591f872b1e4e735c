"""A codec as written, with its arguments folded in: syntax.Codec -> ir.Codec."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from relaxc.language import syntax
from relaxc.language.diagnostics import Diagnostic, Label, SpecError
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse
from relaxc.language.vocabulary import BLOCK_UNITS, BUILT_IN
from relaxc.language.words import did_you_mean
from relaxc.program.codec_expressions import ANY_BLOCK, CodecExpressions, Mistake
from relaxc.program.ir import (
    Apply,
    Codec,
    CodecLet,
    Constant,
    Dither,
    Expression,
    Guard,
    Read,
    Reduce,
    Send,
    Transform,
    within,
)  # fmt: skip
from relaxc.wire.layout import FLOAT_BYTES, LARGEST_BLOCK, Field, Layout, WireType


def lower_codec(use: CodecUse) -> Codec:
    """Raise SpecError with all mistakes that make the codec's body none that can be compiled: RX0230 what is missing or
    stands there twice, RX0231 names, RX0232 values, RX0233 functions, RX0234 what the receiver doesn't have, RX0236 a
    top, RX0237 `chosen`, RX0238 a transform."""
    return _Lowering(use).codec()


@dataclass
class _Lowering(CodecExpressions):
    mistakes: list[Diagnostic] = field(default_factory=list)
    steps: list[CodecLet | Send] = field(default_factory=list)
    fields: list[Field] = field(default_factory=list)
    received: set[str] = field(default_factory=lambda: {"index"})
    """The names that the receiver has too: fields, and lets that read only what it has."""
    taken: dict[str, str] = field(default_factory=dict)
    """What each name is: a let, a field."""
    receive: Expression | None = None
    near: str | None = None
    found: list[CodecLet] = field(default_factory=list)
    """The lets behind `receive`, for the guard."""
    guard: Guard | None = None
    states: dict[str, float] = field(default_factory=dict)
    updates: list[CodecLet] = field(default_factory=list)

    def codec(self) -> Codec:
        self.whole()
        for statement in self.use.definition.body:
            self.tried(statement)
        if self.mistakes:
            raise SpecError(self.mistakes)
        assert self.receive is not None
        layout = Layout(self.block, tuple(self.fields), self.unit)
        guard, states = self.kept()
        return Codec(
            str(self.use), layout, tuple(self.steps), self.receive, self.dithers, self.near, guard, states
        )  # fmt: skip

    def kept(self) -> tuple[Guard | None, tuple[tuple[str, float], ...]]:
        """The guard and the states; without states that nothing sent depends on, and what is only for them."""
        if self.guard is None:
            return None, ()
        lets = self.lets_for((self.guard.holds,))
        used = self.used({name for e in (self.receive, self.guard.holds, *(let.value for let in lets)) if e is not None
                          for name in _reads(e)})  # fmt: skip
        if not used & set(self.states):
            self.steps = [s for s in self.steps if isinstance(s, Send) or s.name in used]
            return replace(self.guard, lets=lets), ()
        lets = self.lets_for((self.guard.holds, *(u.value for u in self.updates)))
        return Guard(lets, self.guard.holds, tuple(self.updates)), tuple(self.states.items())

    def used(self, names: set[str]) -> set[str]:
        """All that is read to send, and for what a receiver reads."""
        for step in reversed(self.steps):
            if isinstance(step, Send) or step.name in names:
                names |= _reads(step.value)
        return names

    def lets_for(self, read: Iterable[Expression]) -> tuple[CodecLet, ...]:
        """The lets behind `receive` that these need."""
        names = {name for e in read for name in _reads(e)}
        needed: list[CodecLet] = []
        for let in reversed(self.found):
            if let.name in names:
                names |= _reads(let.value)
                needed.insert(0, let)
        return tuple(needed)

    def whole(self) -> None:
        """What can be said of the body without its expressions."""
        body, name, span = self.use.definition.body, self.use.name, self.use.definition.span
        if not any(isinstance(s, syntax.Receive) for s in body):
            self.report(Mistake("RX0230", span, f"codec {name} has no `receive`", "write receive = ..."))
        if not any(isinstance(s, syntax.Send) for s in body):
            self.report(Mistake("RX0230", span, f"codec {name} sends nothing", "write send NAME: TYPE = ..."))
        for kind, word in ((syntax.Receive, "receive"), (syntax.Per, "per"), (syntax.Guard, "guard")):
            for again in [s for s in body if isinstance(s, kind)][1:]:
                self.report(Mistake("RX0230", again.span, f"a second `{word}`", "keep one of them"))

    def tried(self, statement: syntax.CodecStatement) -> None:
        """A statement with a mistake leaves its name behind, so that those behind it are not blamed for it."""
        try:
            self.statement(statement)
        except Mistake as mistake:
            self.report(mistake)
            if isinstance(statement, syntax.Let | syntax.Send):
                self.varies.setdefault(statement.name, True)
                self.received.add(statement.name)

    def report(self, mistake: Mistake) -> None:
        """What goes wrong in a codec of another file is the doing of the arguments."""
        diagnostic, use = mistake.diagnostic, self.use.span
        if use.source is not self.use.definition.span.source:
            diagnostic = replace(diagnostic, labels=(Label(use), *diagnostic.labels))
        self.mistakes.append(diagnostic)

    def statement(self, statement: syntax.CodecStatement) -> None:
        match statement:
            case syntax.Per():
                self.per(statement)
            case syntax.Let():
                self.let(statement)
            case syntax.Send():
                self.send(statement)
            case syntax.Receive():
                self.receives(statement)
            case syntax.Guard():
                self.guards(statement)
            case syntax.State():
                self.state(statement)
            case syntax.Assign():
                self.assign(statement)

    # --- statements

    def per(self, per: syntax.Per) -> None:
        self.has_per = True
        if self.taken:
            raise Mistake("RX0230", per.span, "`per` behind other statements", "write it first")
        if per.unit not in BLOCK_UNITS:
            help = did_you_mean(per.unit, BLOCK_UNITS) or "write per block(512), per tensor or per chunk"
            raise Mistake("RX0230", per.span, f"no unit `{per.unit}`", help)
        if per.unit == "block":
            self.block = self.block_size(per)
            return
        if per.size is not None:
            raise Mistake("RX0230", per.size.span, f"`per {per.unit}` has no size", f"write per {per.unit}")
        self.block, self.unit = 0, per.unit

    def block_size(self, per: syntax.Per) -> int:
        if per.size is None:
            raise Mistake("RX0230", per.span, "a block without a size", "write per block(512)")
        size = self.constant(per.size)
        if not size.is_integer() or not 1 <= size <= LARGEST_BLOCK:
            help = f"use a whole number from 1 to {LARGEST_BLOCK}"
            raise Mistake("RX0232", per.span, f"a block of {size:g} elements", help)
        return int(size)

    def let(self, let: syntax.Let) -> None:
        self.named(let.name, let.span, "let")
        value = self.expression(let.value)
        if isinstance(value, Constant):
            self.constants[let.name] = value
            return
        if self.receive is not None:
            self.has(value, let.span, blocks=True)
        self.bind(let.name, value, received=self.receive is not None or self.missing(value) is None)
        (self.steps if self.receive is None else self.found).append(CodecLet(let.name, value))

    def send(self, send: syntax.Send) -> None:
        self.named(send.name, send.span, "field")
        value = self.expression(send.value)
        self.bind(send.name, value, received=True)
        self.constants.pop(send.name, None)
        self.steps.append(Send(len(self.fields), send.name, value))
        wire = self.wire(send.wire)
        if wire.kind == "top" and not self.varies[send.name]:
            raise Mistake("RX0236", send.span, "the largest of one number", "top takes a value of each element")
        self.fields.append(Field(send.name, wire, self.varies[send.name]))

    def receives(self, statement: syntax.Receive) -> None:
        if statement.near is not None:
            self.named(statement.near, statement.span, "receiver's value")
            self.near = statement.near
            self.varies[statement.near] = True
            self.received.add(statement.near)
        self.has_per = True  # a reduction here is a mistake of another kind
        value = self.expression(statement.value)
        self.has(value, statement.span)
        self.receive = value
        self.received |= set(self.states)

    def state(self, statement: syntax.State) -> None:
        self.named(statement.name, statement.span, "state")
        self.states[statement.name] = 0.0 if statement.value is None else self.constant(statement.value)
        self.varies[statement.name] = False

    def assign(self, statement: syntax.Assign) -> None:
        value = self.expression(statement.value)
        self.has(value, statement.span, blocks=True)
        if self.per_element(value) and not self.mistakes:
            raise Mistake("RX0232", statement.span, "a state that differs from element to element", "take max or mean")
        self.updates.append(CodecLet(statement.name, value))

    def guards(self, statement: syntax.Guard) -> None:
        value = self.expression(statement.value)
        self.has(value, statement.span, blocks=True)
        if self.per_element(value) and not self.mistakes:
            help = "say it of the whole block: max(abs(x)) < 1, or a sum"
            raise Mistake("RX0232", statement.span, "a guard that differs from element to element", help)
        lets = self.lets_for((value,))
        if {name for e in (value, *(let.value for let in lets)) for name in _reads(e)} & set(self.states):
            help = "compare what was sent with what is found: then nobody's history matters"
            raise Mistake("RX0368", statement.span, "a guard that depends on a state", help)
        self.guard = Guard((), value)

    def has(self, value: Expression, span: Span, blocks: bool = False) -> None:
        """`blocks`: the receiver has the whole block by then, and can reduce over it."""
        if missing := self.missing(value, blocks):
            help = "it has what was sent, parameters, and lets that read nothing else"
            raise Mistake("RX0234", span, f"the receiver has no {missing}", help)

    def named(self, name: str, span: Span, kind: str) -> None:
        """A field may have the name of a let before it; no other name stands for two things."""
        before = self.taken.get(name)
        if name in self.arguments or (before is not None and (before, kind) != ("let", "field")):
            what = "a parameter" if name in self.arguments else f"a {before}"
            raise Mistake("RX0231", span, f"`{name}` is {what} already", "choose another name")
        if name in BUILT_IN:
            raise Mistake("RX0231", span, f"`{name}` is a word of the language", "choose another name")
        self.taken[name] = kind

    def bind(self, name: str, value: Expression, received: bool) -> None:
        self.varies[name] = self.per_element(value)
        (self.received.add if received else self.received.discard)(name)

    def missing(self, e: Expression, blocks: bool = False) -> str | None:
        """The first thing in `e` that a receiver does not have."""
        match e:
            case Read(name=name):
                return None if name in self.received else f"`{name}`"
            case Apply(arguments=arguments):
                return next(filter(None, (self.missing(a, blocks) for a in arguments)), None)
            case Reduce(argument=argument) if blocks:
                return self.missing(argument, blocks)
            case Reduce(function=function):
                return f"block to take {function} of"
            case Dither():
                return "random bits"
            case Transform(argument=argument):
                return self.missing(argument)
        return None

    def wire(self, wire: syntax.Wire) -> WireType:
        if wire.name in ("uint", "int"):
            return WireType(wire.name, self.width(wire))
        if wire.name == "top":
            return WireType(wire.name, part=self.part(wire))
        if wire.name != "real" and wire.name not in FLOAT_BYTES:
            help = "use f32, f16, bf16, real, uint(n), int(n) or top(part)"
            raise Mistake("RX0232", wire.span, f"no wire type {wire.name}", help)
        if wire.width is not None:
            raise Mistake("RX0232", wire.span, f"{wire.name} has a width of its own", f"write {wire.name}")
        return WireType(wire.name)

    def part(self, wire: syntax.Wire) -> float:
        """How many a top keeps: a share of its block, or from 1 on a count."""
        if not self.has_per:
            raise Mistake("RX0230", wire.span, "nothing says what top reaches over", "begin with per tensor")
        if wire.width is None:
            raise Mistake("RX0236", wire.span, "top without a part", "write top(1%), or a count: top(32)")
        part = self.constant(wire.width)
        if not 0 < part < math.inf or (part >= 1 and not part.is_integer()):
            help = "use a share such as 1%, or a whole number of elements"
            raise Mistake("RX0236", wire.width.span, f"{part:g} of the elements of a block", help)
        if self.unit == "block" and part >= self.block:
            told = self.told() or "keep fewer than there are"
            raise Mistake("RX0236", wire.width.span, f"{part:g} of the {self.block} elements of a block", told)
        return part

    def width(self, wire: syntax.Wire) -> int:
        if wire.width is None:
            raise Mistake("RX0232", wire.span, f"{wire.name} without a width", f"write {wire.name}(8)")
        bits = self.constant(wire.width)
        if not bits.is_integer() or not 1 <= bits <= 8:
            raise Mistake("RX0232", wire.span, f"{wire.name} of {bits:g} bits", "a field has 1 to 8 bits")
        return int(bits)


def _reads(e: Expression) -> set[str]:
    return {part.name for part in within(e) if isinstance(part, Read)}


EXACT = Codec(
    "exact",
    Layout(ANY_BLOCK, (Field("value", WireType("real"), True),)),
    (Send(0, "value", Read("x")),),
    Read("value"),
    False,
)
"""specs/codecs/exact.relax: what carries a mix without a codec."""
