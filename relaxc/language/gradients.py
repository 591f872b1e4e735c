"""`relax gradients [for SELECTOR] { compress, feedback, delay, route }` to a relaxation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from relaxc.language import format, library, syntax
from relaxc.language.codecs import codec
from relaxc.language.diagnostics import Label
from relaxc.language.names import Scope
from relaxc.language.report import Report
from relaxc.language.selectors import selector
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse, Feedback, Relaxation
from relaxc.language.unbuilt import refuse
from relaxc.language.values import fold
from relaxc.language.vocabulary import FEEDBACKS, TOPOLOGIES
from relaxc.language.words import clipped, did_you_mean, listed
from relaxc.wire.routes import DEFAULT_ROUTE, ROUTES

KNOBS = ("compress", "feedback", "delay", "route")
ALSO = {"topology": "route"}
"""`topology` is accepted for `route`: an exact mean has a route, a mix has a topology."""

MAX_DELAY = 100


@dataclass(frozen=True, slots=True)
class Checker:
    """What the clauses of a statement are checked against. `local` are the names of the file's own codecs."""

    scope: Scope
    local: frozenset[str]
    report: Report

    def relaxation(self, item: syntax.Relax) -> Relaxation | None:
        """None after a mistake in the selector; mistakes in clauses leave defaults, so that later checks go on."""
        test = None if item.selector is None else self._selector(item.selector)
        made = self._with(item, test, self._clauses(item.clauses or ()))
        return None if test is None and item.selector is not None else made

    def _with(
        self, item: syntax.Relax, test: syntax.Expression | None, given: Mapping[str, syntax.Clause]
    ) -> Relaxation:
        use = self._compress(given.get("compress"))
        feedback, route = self._feedback(given.get("feedback"), use), self._route(given.get("route"))
        carried = self._carried(use, route, item.span)
        return Relaxation(item.span, test, carried, feedback, self._delay(given.get("delay")), route)

    def _selector(self, e: syntax.Expression) -> syntax.Expression | None:
        with self.report.noting(self.scope.use(e)):
            return selector(e, self.scope.values, self.report)

    # --- clauses

    def _clauses(self, clauses: tuple[syntax.Clause, ...]) -> dict[str, syntax.Clause]:
        """The clauses by knob; unknown and repeated ones are reported."""
        found: dict[str, syntax.Clause] = {}
        for clause in clauses:
            knob = ALSO.get(clause.key, clause.key)
            self.scope.use(clause.value)
            if knob not in KNOBS:
                self._unknown(clause)
            elif knob in found:
                first = Label(found[knob].key_span, "first given here")
                self.report.error(
                    "RX0102",
                    f"`{knob}` is given twice",
                    clause.key_span,
                    "given again",
                    "delete one of the two",
                    [first],
                )
            else:
                found[knob] = clause
        return found

    def _unknown(self, clause: syntax.Clause) -> None:
        key, report = clause.key, self.report
        if key == "every":
            message = "gradients are exchanged in every iteration"
            help_ = "accumulate with relaxed.no_sync(), or exchange the sum of updates with `relax updates`"
            report.error("RX0111", message, clause.key_span, "not a knob of gradients", help_)
        elif not refuse(report, f"clause {key}", clause.key_span):
            help_ = did_you_mean(key, (*KNOBS, *ALSO)) or f"its knobs are {listed(KNOBS, 'and')}"
            report.error("RX0101", f"`{key}` is not a knob of gradients", clause.key_span, help=help_)

    def _value(self, clause: syntax.Clause) -> syntax.Expression | None:
        return fold(clause.value, self.scope.values, self.report)

    def _compress(self, clause: syntax.Clause | None) -> CodecUse | None:
        if clause is None:
            return None
        with self.report.noting(self.scope.use(clause.value)):
            value = self._value(clause)
            return None if value is None else codec(value, self.local, self.report)

    def _feedback(self, clause: syntax.Clause | None, use: CodecUse | None) -> Feedback:
        word = self._word(clause, FEEDBACKS, "RX0207", "feedback")
        feedback = Feedback.AUTO if word is None else Feedback(word)
        if clause is not None and use is None and feedback not in (Feedback.NONE, Feedback.AUTO):
            self.report.warn("RX0303", "feedback has no effect here", clause.span, "nothing is lost without a codec",
                             "add `compress`, or delete it")  # fmt: skip
        return Feedback.NONE if use is None else feedback

    def _route(self, clause: syntax.Clause | None) -> str:
        return self._word(clause, tuple(ROUTES), "RX0206", "route") or DEFAULT_ROUTE

    def _carried(self, use: CodecUse | None, route: str, span: Span) -> CodecUse | None:
        """An uncompressed mean is all-reduced; asked to take a route, it travels as messages of plain numbers."""
        if use is not None or route == DEFAULT_ROUTE:
            return use
        exact = library.codec("exact")
        assert exact is not None, "specs/codecs/exact.relax is part of the library"
        return CodecUse(exact, (), span)

    def _word(self, clause: syntax.Clause | None, words: tuple[str, ...], code: str, knob: str) -> str | None:
        """The value of a knob that takes one of some words; None after a mistake and without a clause."""
        if clause is None:
            return None
        with self.report.noting(self.scope.use(clause.value)):
            value = self._value(clause)
            if isinstance(value, syntax.Name) and value.name in words:
                return value.name
            if value is not None:
                self._wrong_word(value, words, code, knob)
        return None

    def _wrong_word(self, value: syntax.Expression, words: tuple[str, ...], code: str, knob: str) -> None:
        shown = clipped(format.expression(value))
        name = value.function if isinstance(value, syntax.Call) else shown
        if refuse(self.report, f"{knob} {name}", value.span):
            return
        if knob == "route" and name in TOPOLOGIES:
            label, help_ = "a topology, which is for mixing weights", f"a mean has the route {listed(words)}"
        else:
            label, help_ = "", did_you_mean(name, words) or f"use {listed(words)}"
        self.report.error(code, f"no {knob} `{shown}`", value.span, label, help_)

    def _delay(self, clause: syntax.Clause | None) -> int:
        if clause is None:
            return 0
        with self.report.noting(self.scope.use(clause.value)):
            value = self._value(clause)
            return 0 if value is None else self._iterations(value)

    def _iterations(self, value: syntax.Expression) -> int:
        """A whole number of iterations, written `2` or `2 steps` in one word."""
        shown, span = clipped(format.expression(value)), value.span
        if isinstance(value, syntax.Name) and refuse(self.report, f"delay {value.name}", span):
            return 0
        if not isinstance(value, syntax.Number | syntax.Quantity) or getattr(value, "unit", "step") != "step":
            self._no_delay(f"`{shown}` is not a number of iterations", span, "")
        elif not value.value.is_integer() or value.value < 0:
            self._no_delay(f"a delay of {shown} iterations", span, "not a whole number from 0 up")
        elif value.value > MAX_DELAY:
            label = "each iteration of delay keeps one more gradient in memory"
            self.report.error(
                "RX0203", f"a delay of {shown} iterations is too long", span, label, f"use at most {MAX_DELAY}"
            )
        else:
            return int(value.value)
        return 0

    def _no_delay(self, message: str, span: Span, label: str) -> None:
        self.report.error("RX0203", message, span, label, "a delay counts iterations: delay = 1")
