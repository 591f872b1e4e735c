"""The body of an algorithm: its names, its functions, where things may stand, and what its parameters are for.

What depends on the arguments of a use is for body_values.py to say, what needs types for program/.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from relaxc.language import format, library, syntax
from relaxc.language.definitions import Definitions
from relaxc.language.diagnostics import Label
from relaxc.language.functions import FUNCTIONS, PERIODS, Where, arity, many
from relaxc.language.names import parts
from relaxc.language.places import name_span, parameter_spans
from relaxc.language.purposes import check_purposes
from relaxc.language.reading import is_condition, no_condition
from relaxc.language.report import Report
from relaxc.language.sites import BY_KEYWORD, PLACED, Site, kind_of, roles
from relaxc.language.source import Span
from relaxc.language.structure import check_structure
from relaxc.language.unbuilt import refuse
from relaxc.language.vocabulary import BUILT_IN, FEEDBACKS, READABLE, ROUTE_NAMES, TOPOLOGIES
from relaxc.language.words import clipped, did_you_mean, listed

"""What a body may read besides its own names."""

ASSIGNABLE = ("weight", "grad")
UNITS = ("%", "bit", "step")


@dataclass(slots=True)
class Entry:
    """A name of the body. `what` is parameter, state or let."""

    what: str
    span: Span
    read: bool = False


def check_body(definition: syntax.Algorithm, defined: Definitions, report: Report) -> bool:
    """Reports what is wrong with the body whatever its arguments; whether nothing is."""
    before = report.mistakes
    _Body(definition, defined, report).check()
    check_structure(definition.body, report)
    check_purposes(definition, report)
    return report.mistakes == before


@dataclass(slots=True)
class _Body:
    definition: syntax.Algorithm
    defined: Definitions
    report: Report
    scopes: list[dict[str, Entry]] = field(default_factory=list)
    closed: list[tuple[str, Entry]] = field(default_factory=list)
    """All names of scopes that have ended."""
    later: dict[str, str] = field(default_factory=dict)
    """All lets and states of the body, for what is named too early."""

    def check(self) -> None:
        parameters = self.definition.parameters
        spans = parameter_spans(parameters)
        self.scopes = [{p.name: Entry("parameter", span) for p, span in zip(parameters, spans, strict=True)}]
        self.later = dict(_declared(self.definition.body))
        before = self.report.mistakes
        self.block(self.definition.body, top=True)
        self.closed += self.scopes[0].items()
        if self.report.mistakes == before:
            self.unread()

    # --- statements

    def block(self, body: Sequence[syntax.Statement], top: bool = False) -> None:
        self.scopes.append({})
        for statement in body:
            self.statement(statement, top)
        self.closed += self.scopes.pop().items()

    def unread(self) -> None:
        for name, entry in self.closed:
            if not entry.read:
                what = "read" if entry.what == "state" else "used"
                self.report.warn("RX0110", f"the {entry.what} `{name}` is never {what}", entry.span, help="delete it")

    def statement(self, s: syntax.Statement, top: bool) -> None:
        match s:
            case syntax.State():
                self.state(s, top)
            case syntax.Let():
                self.expression(s.value, Where.ALGORITHM)
                self.define(s, "let")
            case syntax.Assign():
                self.late(s.value)
                self.target(s)
            case syntax.Every():
                self.period(s.period)
                self.block(s.body)
            case syntax.After():
                self.special("delay", s.delay)
                self.block(s.body)
            case syntax.Phase():
                if s.length is not None:
                    self.special("length", s.length)
                self.block(s.body)

    def state(self, s: syntax.State, top: bool) -> None:
        if not top:
            message = f"the state `{clipped(s.name)}` is declared inside a block"
            self.report.error("RX0114", message, name_span(s, "state"), "states live throughout",
                              "declare it at the top of the algorithm")  # fmt: skip
        if s.value is not None:
            self.expression(s.value, Where.INITIAL)
        self.define(s, "state")

    def define(self, s: syntax.State | syntax.Let, what: str) -> None:
        span, shown = name_span(s, what), f"`{clipped(s.name)}`"
        entry = self.find(s.name)
        if s.name in BUILT_IN:
            self.report.error("RX0104", f"{shown} is a word of the language", span, f"can't be the name of a {what}",
                              "choose another name")  # fmt: skip
        elif entry is not None:
            first = Label(entry.span, f"the {entry.what} is here")
            self.report.error("RX0106", f"{shown} is defined twice", span, "defined again", "choose another name",
                              [first])  # fmt: skip
        elif s.name in self.defined.scope.places:
            first = Label(self.defined.scope.places[s.name], "the param is here")
            self.report.error("RX0106", f"{shown} is defined twice", span, "defined again", "choose another name",
                              [first])  # fmt: skip
        self.scopes[-1].setdefault(s.name, Entry(what, span))

    def target(self, s: syntax.Assign) -> None:
        name, span = s.name, Span(s.span.source, s.span.start, s.span.start + len(s.name))
        entry = self.find(name)
        if name in ASSIGNABLE or (entry is not None and entry.what == "state"):
            return
        if entry is not None:
            what, help_ = f"a {entry.what}", "make it a state, or give the new value another name"
            label = "never changes"
            self.report.error("RX0113", f"`{name}` is {what}, which can't be assigned to", span, label, help_,
                              [Label(entry.span, "defined here")])  # fmt: skip
        elif name in BUILT_IN or name in self.defined.scope.places:
            self.report.error(
                "RX0113", f"`{name}` can't be assigned to", span, "only states, weight and grad can", None
            )
        else:
            self.unknown(name, span)

    def period(self, e: syntax.Expression) -> None:
        if isinstance(e, syntax.Call) and e.function in PERIODS:
            self.count(e, (1, 1))
            self.keywords(e, ())
            for argument in e.arguments:
                self.number_of_a_period(argument)
        else:
            self.number_of_a_period(e)

    def number_of_a_period(self, e: syntax.Expression) -> None:
        if is_condition(e):
            no_condition(clipped(format.expression(e)), e.span, self.report)
        self.expression(e, Where.HEADER)

    # --- expressions

    def late(self, e: syntax.Expression) -> None:
        """An assigned value, in which a delay may stand."""
        for part in parts(e):
            if isinstance(part, syntax.Call) and part.function == "delay":
                for inner in (x for a in part.arguments for x in parts(a)):
                    if isinstance(inner, syntax.Call) and inner.function == "delay":
                        self.misplaced("a delay inside of a delay", inner, "add the two up")
        self.expression(e, Where.ALGORITHM, may_be_late=True)

    def misplaced(self, message: str, e: syntax.Call, help_: str | None) -> None:
        span = Span(e.span.source, e.span.start, e.span.start + len(e.function))
        self.report.error("RX0115", message, span, "", help_)

    def expression(self, e: syntax.Expression, where: Where, may_be_late: bool = False) -> None:
        match e:
            case syntax.Name():
                self.name(e, where)
            case syntax.Member():
                self.member(e, where)
            case syntax.Quantity() if e.unit not in UNITS:
                self.no_number(e, "can't be computed with")
            case syntax.String():
                self.no_number(e, "text is no value of an algorithm")
            case syntax.Unary(operand=operand):
                self.expression(operand, where, may_be_late)
            case syntax.Binary(left=left, right=right):
                self.expression(left, where, may_be_late)
                self.expression(right, where, may_be_late)
            case syntax.Call():
                self.call(e, where, may_be_late)

    def no_number(self, e: syntax.Expression, label: str, help_: str | None = None) -> None:
        self.report.error("RX0209", f"`{clipped(format.expression(e))}` is not a number", e.span, label, help_)

    def member(self, e: syntax.Member, where: Where) -> None:
        if e.base != "optimizer":
            self.report.error("RX0105", f"`{clipped(e.base)}` has no parts", e.span, "only `optimizer` has",
                              f"write optimizer.{clipped(e.name)}")  # fmt: skip
        elif where is Where.INITIAL:
            self.initial_only(e)

    def initial_only(self, e: syntax.Expression) -> None:
        message = f"`{clipped(format.expression(e))}` is not there yet when a state starts"
        self.report.error("RX0115", message, e.span, "", "states start from weight, constants and states above them")

    def name(self, e: syntax.Name, where: Where) -> None:
        entry = self.find(e.name)
        if entry is not None:
            entry.read = True
            if where is Where.INITIAL and entry.what == "let":
                self.initial_only(e)
        elif e.name in self.defined.scope.places:
            self.defined.scope.use(e)
        elif e.name in READABLE:
            if where is Where.INITIAL and e.name not in ("weight", "workers"):
                self.initial_only(e)
        elif e.name == "optimizer":
            self.report.error("RX0105", "`optimizer` is no value", e.span, help="write optimizer.weight_decay")
        elif e.name in FUNCTIONS:
            self.report.error("RX0105", f"`{e.name}` is a function", e.span, help=f"call it: {e.name}(...)")
        elif e.name in (*TOPOLOGIES, *ROUTE_NAMES, *FEEDBACKS) or e.name in library.codecs():
            graph = e.name in TOPOLOGIES
            help_ = f"it stands in a mix: mix(weight, {e.name})" if graph else None
            self.no_number(e, "a topology" if graph else "a word", help_)
        else:
            self.unknown(e.name, e.span)

    def unknown(self, name: str, span: Span) -> None:
        shown = clipped(name)
        if name in self.later:
            what = self.later[name]
            self.report.error("RX0105", f"`{shown}` is not defined here", span, f"its {what} stands elsewhere",
                              f"move the {what} above, into this block or one around it")  # fmt: skip
            return
        known = [*READABLE, *self.defined.scope.values, *(n for scope in self.scopes for n in scope)]
        self.report.error("RX0105", f"no name `{shown}` here", span, "", did_you_mean(name, known))

    def find(self, name: str) -> Entry | None:
        return next((scope[name] for scope in reversed(self.scopes) if name in scope), None)

    # --- calls

    def call(self, e: syntax.Call, where: Where, may_be_late: bool) -> None:
        if e.function not in FUNCTIONS:
            self.no_function(e)
            return
        refuse(self.report, f"function {e.function}", e.span)
        takes = arity(e.function, where)
        if takes is None:
            self.misplaced(f"`{e.function}` can't stand in {where.value}", e, HELP.get(where))
            return
        if e.function == "delay" and not may_be_late:
            help_ = "delay what is assigned: weight += delay(x, 2); or use after 2 { ... }"
            self.misplaced("a delay that is not part of an assignment", e, help_)
        if self.count(e, takes):
            self.keywords(e, FUNCTIONS[e.function].keywords)
            if self.swapped(e):
                return
        for position, argument in enumerate(e.arguments):
            self.argument(kind_of(e.function, position), argument, where, may_be_late)
        for keyword in e.keywords:
            if keyword.name in BY_KEYWORD:
                self.special(BY_KEYWORD[keyword.name], keyword.value)

    def swapped(self, e: syntax.Call) -> bool:
        """Whether a mix has its topology first, which is reported."""
        if PLACED.get(e.function) != "topology" or [self.is_topology(a) for a in e.arguments] != [True, False]:
            return False
        graph, value = (clipped(format.expression(a)) for a in e.arguments)
        self.report.error("RX0209", f"the arguments of `{e.function}` are swapped", e.span, "the topology comes last",
                          f"write {e.function}({value}, {graph})")  # fmt: skip
        return True

    def is_topology(self, e: syntax.Expression) -> bool:
        name = e.function if isinstance(e, syntax.Call) else e.name if isinstance(e, syntax.Name) else ""
        return name in TOPOLOGIES

    def argument(self, kind: str, e: syntax.Expression, where: Where, may_be_late: bool) -> None:
        if kind == "number":
            self.expression(e, where, may_be_late)
        else:
            self.special(kind, e)

    def count(self, e: syntax.Call, takes: tuple[int, int]) -> bool:
        least, most = takes
        right = least <= len(e.arguments) <= most
        if not right:
            message = f"`{e.function}` takes {many(least, most)}"
            self.report.error("RX0107", message, e.span, f"{len(e.arguments)} given", HINTS.get(e.function))
        return right

    def keywords(self, e: syntax.Call, known: tuple[str, ...]) -> None:
        seen: set[str] = set()
        for keyword in e.keywords:
            if keyword.name not in known:
                takes = f"it takes {', '.join(known)} by name" if known else "write the value alone"
                help_ = did_you_mean(keyword.name, known) or takes
                message = f"`{e.function}` has no argument `{clipped(keyword.name)}`"
                self.report.error("RX0107", message, keyword.span, help=help_)
            elif keyword.name in seen:
                self.report.error(
                    "RX0107", f"`{keyword.name}` is given twice", keyword.span, help="delete one of the two"
                )
            seen.add(keyword.name)

    def no_function(self, e: syntax.Call) -> None:
        name = e.function
        span = Span(e.span.source, e.span.start, e.span.start + len(name))
        label, help_ = "", did_you_mean(name, FUNCTIONS)
        if name in PERIODS:
            label, help_ = "a period", f"it stands behind `every`: every {name}(8) {{ ... }}"
        elif name in self.defined.algorithms or library.is_algorithm(name):
            label, help_ = "an algorithm", "an algorithm can't run another: write out what it does"
        elif name in TOPOLOGIES:
            label, help_ = "a topology", f"it stands in a mix: mix(weight, {name}(...))"
        elif name in self.defined.codecs or name in library.codecs():
            label, help_ = "a codec", f"it stands in an exchange: mean(grad, compress = {name}(...))"
        elif not help_:
            help_ = f"functions are {listed(sorted(FUNCTIONS), 'and')}"
        self.report.error("RX0105", f"no function `{clipped(name)}`", span, label, help_)

    def special(self, kind: str, e: syntax.Expression) -> None:
        """What is known before training: a codec, a topology, a delay, ..."""
        for role, name in roles(Site(kind, e)):
            entry = self.find(name.name)
            if entry is not None and entry.what == "parameter":
                entry.read = True
            elif name.name in self.defined.scope.places:
                self.defined.scope.use(name)
            elif entry is not None or name.name in READABLE:
                what = "is" if entry is None else f"is a {entry.what}, which is"
                self.report.error("RX0209", f"`{name.name}` {what} not known before training", name.span,
                                  help=f"a {kind} is made of constants and parameters")  # fmt: skip
            elif role == "number" and name.name not in BUILT_IN:
                self.unknown(name.name, name.span)


HELP = {
    Where.HEADER: "give it a name with `let` before the block",
    Where.INITIAL: "states start from weight, constants and states above them",
    Where.ALGORITHM: "it stands in codecs",
}
HINTS = {
    "mix": "write mix(weight, ring)",
    "push": "write push(weight, ring)",
    "encode": "write encode(weight, 8bit)",
    "delay": "write delay(x, 2)",
    "mean": "write mean(grad)",
    "min": "in an algorithm it is taken element by element: min(a, b)",
    "max": "in an algorithm it is taken element by element: max(a, b)",
}


def _declared(body: Sequence[syntax.Statement]) -> Iterator[tuple[str, str]]:
    for s in body:
        if isinstance(s, syntax.State | syntax.Let):
            yield s.name, "state" if isinstance(s, syntax.State) else "let"
        elif isinstance(s, syntax.Every | syntax.After | syntax.Phase):
            yield from _declared(s.body)
