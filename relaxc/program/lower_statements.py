"""Statements of an algorithm: syntax -> IR. Blocks are numbered in text order; what runs always becomes no block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from relaxc.language import syntax
from relaxc.language.reading import wrong_period
from relaxc.language.source import Span
from relaxc.language.spec import Async, Period
from relaxc.program.ir import (
    ASYNC,
    After,
    Apply,
    Assign,
    Constant,
    Encode,
    Every,
    Expression,
    Let,
    Phase,
    Read,
    Statement,
    Step,
)
from relaxc.program.lower_expressions import Expressions, Late


class Statements:
    """Lowers the statements of one use."""

    def __init__(self, expressions: Expressions) -> None:
        self.of = expressions
        self.blocks = 0

    def body(self, statements: Iterable[syntax.Statement]) -> tuple[Statement, ...]:
        """The statements of a block. Its phases follow one another, whatever stands between them."""
        clock = _Clock()
        return tuple(made for statement in statements for made in self.statement(statement, clock))

    def inner(self, statements: Iterable[syntax.Statement]) -> tuple[Statement, ...]:
        outer = self.of.names
        self.of.names = outer.inner()
        try:
            return self.body(statements)
        finally:
            self.of.names = outer

    def statement(self, s: syntax.Statement, clock: _Clock) -> Iterator[Statement]:
        match s:
            case syntax.Let():
                yield self.let(s)
            case syntax.Assign():
                yield from self.assign(s)
            case syntax.Step():
                yield Step(self.of.place_of(s))
            case syntax.Every():
                yield from self.every(s)
            case syntax.After():
                yield from self.after(s)
            case syntax.Phase():
                yield from self.phase(s, clock)

    def let(self, s: syntax.Let) -> Statement:
        value = self.of.expression(s.value)
        name = self.of.names.bind(s.name)
        if isinstance(value, Encode):
            self.of.codes.add(name)
        return Let(name, value, self.of.place_of(s))

    def assign(self, s: syntax.Assign) -> Iterator[Statement]:
        """A value with a `delay` in it makes the statement one that runs later."""
        value = self.of.expression(s.value)
        late, self.of.late = self.of.late, []
        name = self.of.names.find(s.name) or s.name
        span = self.of.place_of(s)
        if s.operator != "=":
            value = Apply(s.operator[:-1], (Read(name, span), value), span)
        if not late:
            yield Assign(name, value, span)
            return
        yield from (Let(part.name, part.value, part.span) for part in late)
        yield self.made_after(self.one_delay(late), (Assign(name, value, span),), span)

    def made_after(self, delay: int | Async, body: tuple[Statement, ...], span: Span, block: int = 0) -> After:
        block = block or self.block()
        if isinstance(delay, Async):
            return After(block, ASYNC, body, span, delay.most)
        return After(block, delay, body, span)

    def one_delay(self, late: list[Late]) -> int | Async:
        for other in late[1:]:
            if other.delay != late[0].delay:
                self.of.report.error("RX0321", "two delays of different length in one statement", other.span,
                                     help="give each a statement of its own")  # fmt: skip
        return late[0].delay

    def block(self) -> int:
        self.blocks += 1
        return self.blocks

    def every(self, s: syntax.Every) -> Iterator[Statement]:
        period = self.of.reader.written_period(s.period)
        if period is None:
            yield from self.inner(s.body)
            return
        span = self.of.place_of(s.period)
        value = self.period(period, span)
        if value == Constant(1.0):
            yield from self.always(s)
            return
        number = self.block()
        yield Every(number, period.how, value, self.inner(s.body), span)

    def always(self, s: syntax.Every | syntax.After) -> Iterator[Statement]:
        """A block that runs each time is none, unless it has phases: they would become those of the enclosing one."""
        if not any(isinstance(inner, syntax.Phase) for inner in s.body):
            yield from self.inner(s.body)
            return
        number = self.block()
        yield Every(number, "number", Constant(1.0), self.inner(s.body), self.of.place_of(s))

    def period(self, period: Period, span: Span) -> Expression:
        value = self.of.expression(period.value)
        wrong = wrong_period(period.how, value.value) if isinstance(value, Constant) else None
        if isinstance(value, Constant) and wrong is not None:
            self.of.report.error("RX0211", f"a period of {value.value:g} iterations", span, *wrong)
        return value

    def after(self, s: syntax.After) -> Iterator[Statement]:
        delay = self.of.reader.delay(s.delay)
        if not delay:
            yield from self.always(s)
            return
        number = self.block()
        yield self.made_after(delay, self.inner(s.body), self.of.place_of(s), number)

    def phase(self, s: syntax.Phase, clock: _Clock) -> Iterator[Statement]:
        first, end = clock.of(s.name, self.length(s))
        if first == end:
            return
        number = self.block()
        yield Phase(number, s.name, first, end, self.inner(s.body), self.of.place_of(s))

    def length(self, s: syntax.Phase) -> int | None:
        return None if s.length is None else self.of.reader.length(s.length)


class _Clock:
    """When the phases of a block begin and end, in runs of that block. Those of one name are one phase."""

    def __init__(self) -> None:
        self.now = 0
        self.known: dict[str, tuple[int, int | None]] = {}

    def of(self, name: str, length: int | None) -> tuple[int, int | None]:
        if name not in self.known:
            end = None if length is None else self.now + length
            self.known[name] = self.now, end
            self.now = self.now if end is None else end
        return self.known[name]
