"""What an expression says where a codec, a topology, a route, a feedback, a period, a delay or a number is wanted.

The same for the clauses of a statement and for the body of an algorithm, whose parameters have values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from relaxc.language import format, syntax, topologies
from relaxc.language.codecs import codec
from relaxc.language.functions import PERIODS
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import AUTO, Argument, ArgumentValue, Async, CodecUse, Feedback, Names, Period, Use
from relaxc.language.unbuilt import refuse
from relaxc.language.values import Params, constant, fold, numeric, whole
from relaxc.language.vocabulary import FEEDBACKS, ROUTE_NAMES, TOPOLOGIES, WRAPPERS
from relaxc.language.words import clipped, did_you_mean, listed
from relaxc.topology.topology import Topology
from relaxc.wire.routes import HIERARCHY, hierarchy_of

MAX_DELAY = 1000
MAX_PERIOD = 10**9
ASYNC = "async"
IN_PLACE_OF_AUTO = 0.5
"""While a spec is checked; lowering knows the codec."""


@dataclass(slots=True)
class Reader:
    """Reads expressions. Each method gives None after a mistake, which is reported; `codec` gives it for `none` too.

    `given` are the values of an algorithm's parameters, for expressions of its body.
    """

    names: Names
    given: Mapping[str, Argument]
    report: Report
    constants: Params = field(init=False)

    def __post_init__(self) -> None:
        self.constants = {
            **{name: value for name, value in self.names.params.items() if name not in self.given},
            **{name: made for name, argument in self.given.items() if (made := _constant(argument)) is not None},
        }

    @classmethod
    def of(cls, use: Use, report: Report) -> Reader:
        """For what stands in the body of a use. `check` has read each of its expressions already."""
        return cls(use.names, {argument.name: argument for argument in use.arguments}, report)

    def named(self, name: str) -> float | None:
        """The number that a name of the body stands for: a parameter, or a param of the file. None where it stands for
        something else, a state or `weight` say."""
        value = self.constants.get(name)
        return None if value is None else numeric(value)

    def value(self, kind: str, e: syntax.Expression) -> ArgumentValue:
        """The value of an expression at a site of that kind (see sites.py)."""
        method: Callable[[syntax.Expression], ArgumentValue] = getattr(self, kind)
        return method(e)

    def codec(self, e: syntax.Expression) -> CodecUse | None:
        if isinstance(argument := self._argument(e, "codec"), Argument):
            return argument.value if isinstance(argument.value, CodecUse) else None
        value = self._folded(e)
        return None if value is None else codec(value, self.names, self.report)

    def topology(self, e: syntax.Expression) -> Topology | None:
        if isinstance(argument := self._argument(e, "topology"), Argument):
            return argument.value if isinstance(argument.value, Topology) else None
        written = self.names.params.get(e.name, e) if isinstance(e, syntax.Name) and e.name not in self.given else e
        if written is not None and written is not e:
            return self.topology(_moved(written, e))
        if isinstance(written, syntax.Name | syntax.Call) and topologies.name_of(written) in WRAPPERS:
            return self._wrapped(written)
        value = self._folded(e)
        return None if value is None else topologies.plain(value, self.report)

    def _wrapped(self, e: syntax.Name | syntax.Call) -> Topology | None:
        if topologies.name_of(e) == HIERARCHY:
            return self._machines(e)
        if not topologies.is_known(e, self.report) or (written := topologies.inner(e, self.report)) is None:
            return None
        made = self.topology(written)
        if made is not None and made.name == HIERARCHY:
            help_ = "put hierarchy outside: hierarchy(lazy(ring), inner = 4)"
            self.report.error("RX0360", f"`{_shown(e)}` would take machines apart", e.span, help=help_)
            return None
        return None if made is None else Topology(topologies.name_of(e), (made,))

    def _machines(self, e: syntax.Name | syntax.Call) -> Topology | None:
        """hierarchy(T) or hierarchy(T, inner = n)."""
        example = "hierarchy(ring, inner = 4)"
        if not isinstance(e, syntax.Call) or len(e.arguments) != 1:
            message = f"`{_shown(e)}` does not say how machines mix"
            self.report.error("RX0360", message, e.span, "a mix takes their topology", f"write {example}")
            return None
        inner = self._inner(e, example, 1) if e.keywords else None
        made = self.topology(e.arguments[0])
        if made is None or (e.keywords and inner is None):
            return None
        if made.name == HIERARCHY:
            self.report.error("RX0360", "a hierarchy of hierarchies", e.span, help=f"write {example}")
            return None
        return Topology(HIERARCHY, (made,) if inner is None else (made, inner))

    def feedback(self, e: syntax.Expression) -> Feedback | None:
        if isinstance(argument := self._argument(e, "feedback"), Argument):
            return argument.value if isinstance(argument.value, Feedback) else None
        word = self._word(e, FEEDBACKS, "RX0207", "feedback")
        return None if word is None else Feedback(word)

    def route(self, e: syntax.Expression) -> str | None:
        if isinstance(argument := self._argument(e, "route"), Argument):
            return argument.value if isinstance(argument.value, str) else None
        value = self._folded(e)
        if isinstance(value, syntax.Call) and value.function == HIERARCHY:
            inner = self._inner(value, "hierarchy(inner = 4)", 0)
            return None if inner is None else hierarchy_of(inner)
        return None if value is None else self._word(value, ROUTE_NAMES, "RX0206", "route")

    def _inner(self, e: syntax.Call, example: str, arguments: int) -> int | None:
        """The workers of a machine, which a hierarchy's only keyword gives."""
        if len(e.arguments) != arguments or [k.name for k in e.keywords] != ["inner"]:
            help_ = f"write {example}, or leave out `inner`: it is LOCAL_WORLD_SIZE then"
            self.report.error("RX0360", f"`{_shown(e)}` is no hierarchy", e.span, help=help_)
            return None
        value = e.keywords[0].value
        number = self.number(value)
        if number is None:
            return None
        if not isinstance(number, int) or number < 1:
            message = f"a machine with {_shown(value)} workers"
            self.report.error("RX0361", message, value.span, "not a whole number from 1 up", f"write {example}")
            return None
        return number

    def period(self, e: syntax.Expression) -> Period | None:
        """Of a clause or of the default of a parameter: its number is a constant."""
        if isinstance(argument := self._argument(e, "period"), Argument):
            return argument.value if isinstance(argument.value, Period) else None
        value = self._folded(e)
        if value is None:
            return None
        if isinstance(value, syntax.Call) and value.function in PERIODS:
            return self._drawn(value)
        return self._fixed("number", value)

    def written_period(self, e: syntax.Expression) -> Period | None:
        """What stands behind `every` in a body: its number may depend on t and states."""
        if isinstance(e, syntax.Name) and e.name in self.given and self.given[e.name].kind == "period":
            return self.period(e)
        if isinstance(e, syntax.Call) and e.function in PERIODS:
            return Period(e.function, e.arguments[0], e.span) if len(e.arguments) == 1 else self._drawn(e)
        return Period("number", e, e.span)

    def _drawn(self, e: syntax.Call) -> Period | None:
        if len(e.arguments) != 1 or e.keywords:
            self.report.error("RX0107", f"`{e.function}` takes one argument", e.span, help=f"write {e.function}(8)")
            return None
        return self._fixed(e.function, e.arguments[0])

    def _fixed(self, how: str, value: syntax.Expression) -> Period | None:
        shown, span = _shown(value), value.span
        number = numeric(value)
        if is_condition(value):
            no_condition(shown, span, self.report)
        elif number is None:
            label = "a topology" if shown in TOPOLOGIES else ""
            self.report.error("RX0211", f"`{shown}` is not a period", span, label,
                              "write a number of iterations, geometric(n) or staggered(n)")  # fmt: skip
        elif (wrong := wrong_period(how, number)) is not None:
            self.report.error("RX0211", f"a period of {shown} iterations", span, *wrong)
        else:
            return Period(how, constant(number, span), span)
        return None

    def delay(self, e: syntax.Expression) -> int | Async | None:
        if isinstance(argument := self._argument(e, "delay"), Argument) and isinstance(argument.value, Async):
            return argument.value
        value = self._folded(e)
        if isinstance(value, syntax.Name | syntax.Call) and topologies.name_of(value) == ASYNC:
            return self._async(value)
        return None if value is None else self._iterations(value)

    def _async(self, e: syntax.Name | syntax.Call) -> Async | None:
        """`async` or async(max = n)."""
        if isinstance(e, syntax.Name):
            return Async()
        if e.arguments or [k.name for k in e.keywords] != ["max"]:
            self.report.error("RX0107", "`async` takes one argument, by name", e.span, "",
                              "write async, or async(max = 8): landing waits for what is 8 iterations old")  # fmt: skip
            return None
        most = self._iterations(e.keywords[0].value)
        if most == 0:
            self._no_delay("an asynchronous delay of at most 0 iterations", e.keywords[0].span, "nothing lands at once")
            return None
        return None if most is None else Async(most)

    def _iterations(self, value: syntax.Expression) -> int | None:
        """A whole number of iterations, written `2` or `2 steps` in one word."""
        shown, span = _shown(value), value.span
        if not isinstance(value, syntax.Number | syntax.Quantity) or getattr(value, "unit", "step") != "step":
            self._no_delay(f"`{shown}` is not a number of iterations", span, "")
        elif not value.value.is_integer() or value.value < 0:
            self._no_delay(f"a delay of {shown} iterations", span, "not a whole number from 0 up")
        elif value.value > MAX_DELAY:
            label = "what is late is kept in memory until it lands"
            self.report.error(
                "RX0203", f"a delay of {shown} iterations is too long", span, label, f"use at most {MAX_DELAY}"
            )
        else:
            return int(value.value)
        return None

    def _no_delay(self, message: str, span: Span, label: str) -> None:
        self.report.error("RX0203", message, span, label, "a delay counts iterations, 1 say, or is `async`")

    def length(self, e: syntax.Expression) -> int | None:
        value = self._folded(e)
        if value is None:
            return None
        number = numeric(value)
        if number is None or not number.is_integer() or not 0 <= number <= MAX_PERIOD:
            message = f"a phase of {_shown(value)} iterations"
            self.report.error("RX0214", message, value.span, f"not a whole number from 0 to {MAX_PERIOD}",
                              "write a number of iterations: for 1000")  # fmt: skip
            return None
        return int(number)

    def number(self, e: syntax.Expression) -> int | float | str | None:
        """An argument may be `auto`, which stays."""
        value = self._folded(e)
        if value is None:
            return None
        if isinstance(value, syntax.Name) and value.name == AUTO:
            return AUTO
        number = numeric(value)
        if number is None:
            self.report.error("RX0209", f"`{_shown(value)}` is not a number", value.span, _what(value, self.names),
                              "write a number such as 0.5, 1e-8 or 1%")  # fmt: skip
            return None
        return whole(number)

    # --- parts

    def _argument(self, e: syntax.Expression, kind: str) -> Argument | None:
        """The parameter of that kind that `e` names."""
        found = self.given.get(e.name) if isinstance(e, syntax.Name) else None
        return found if found is not None and found.kind == kind else None

    def _folded(self, e: syntax.Expression) -> syntax.Expression | None:
        return fold(e, self.constants, self.report)

    def _word(self, e: syntax.Expression, words: tuple[str, ...], code: str, knob: str) -> str | None:
        value = self._folded(e)
        if isinstance(value, syntax.Name) and value.name in words:
            return value.name
        if value is not None:
            self._wrong_word(value, words, code, knob)
        return None

    def _wrong_word(self, value: syntax.Expression, words: tuple[str, ...], code: str, knob: str) -> None:
        shown = _shown(value)
        name = value.function if isinstance(value, syntax.Call) else shown
        if refuse(self.report, f"{knob} {name}", value.span):
            return
        if knob == "route" and name in TOPOLOGIES:
            label, help_ = "a topology, which is for mixing weights", f"a mean has the route {listed(words)}"
        else:
            label, help_ = "", did_you_mean(name, words) or f"use {listed(words)}"
        self.report.error(code, f"no {knob} `{shown}`", value.span, label, help_)


def wrong_period(how: str, number: float) -> tuple[str, str] | None:
    """What is wrong with the number of a period and what to do about it; None where it can be one."""
    if number > MAX_PERIOD:
        return "too long", f"use at most {MAX_PERIOD}"
    if how == "geometric":
        return None if number >= 1 else ("not a number from 1 up", "the mean period counts iterations: 8 or 1.5")
    whole_number = number >= 1 and number.is_integer()
    return None if whole_number else ("not a whole number from 1 up", "a period counts iterations: 8")


CONDITIONS = ("and", "or", "not", "<", "<=", ">", ">=", "==", "!=")


def is_condition(e: syntax.Expression) -> bool:
    return isinstance(e, syntax.Unary | syntax.Binary) and e.operator in CONDITIONS


def no_condition(shown: str, span: Span, report: Report) -> None:
    """Of what is true or false and stands where a period is wanted."""
    report.error("RX0211", f"`{shown}` is a condition, not a period", span, "a period is a number of iterations",
                 "for a condition on time write phases, one after the other: phase NAME for n { ... }")  # fmt: skip


def _constant(argument: Argument) -> syntax.Expression | None:
    """A parameter in arithmetic; None for one that is no number."""
    value = argument.value
    if argument.kind == "number" and value == AUTO:
        return constant(IN_PLACE_OF_AUTO, argument.span)
    if isinstance(value, Period) and value.how == "number":
        return value.value
    if argument.kind in ("number", "delay") and isinstance(value, int | float):
        return constant(float(value), argument.span)
    return None


def _what(e: syntax.Expression, names: Names) -> str:
    name = topologies.name_of(e) if isinstance(e, syntax.Name | syntax.Call) else ""
    if name in TOPOLOGIES:
        return "a topology"
    return "a codec" if name in names.codecs else ""


def _moved(e: syntax.Expression, place: syntax.Expression) -> syntax.Expression:
    return replace(e, span=place.span)


def _shown(e: syntax.Expression) -> str:
    return clipped(format.expression(e))
