"""`relax` statements to uses of algorithms: selectors, clauses, arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxc.language import format, library, syntax
from relaxc.language.body_values import check_values
from relaxc.language.definitions import Definitions, Found
from relaxc.language.diagnostics import Label
from relaxc.language.knobs import KNOBS, WITHOUT, Clauses, Knobs, is_asynchronous
from relaxc.language.names import Scope
from relaxc.language.purposes import kinds_of
from relaxc.language.reading import Reader
from relaxc.language.report import Report
from relaxc.language.selectors import selector
from relaxc.language.source import Span
from relaxc.language.spec import Argument, Feedback, Names, Use
from relaxc.language.unbuilt import refuse
from relaxc.language.vocabulary import QUANTITIES
from relaxc.language.words import clipped, did_you_mean, listed


@dataclass(frozen=True, slots=True)
class Checker:
    """Turns the statements of one file into uses. `faulty` are the file's algorithms whose bodies have mistakes."""

    defined: Definitions
    faulty: frozenset[str]
    report: Report

    @property
    def scope(self) -> Scope:
        return self.defined.scope

    def use(self, item: syntax.Relax) -> Use | None:
        """None after a mistake."""
        before = self.report.mistakes
        test = None if item.selector is None else self._selector(item.selector)
        for clause in item.clauses or ():
            self.scope.use(clause.value)
        made = self._run(item, test) if item.algorithm is not None else self._quantity(item, test)
        return made if self.report.mistakes == before else None

    def _selector(self, e: syntax.Expression) -> syntax.Expression | None:
        with self.report.noting(self.scope.use(e)):
            return selector(e, self.scope.values, self.report)

    # --- relax with NAME

    def _run(self, item: syntax.Relax, test: syntax.Expression | None) -> Use | None:
        found = self.defined.algorithm(item.algorithm or "", item.target_span, self.report)
        if found is None:
            return None
        taken = [p.name for p in found.definition.parameters]
        given = self._clauses(item.clauses or (), {name: name for name in taken}, found.definition.name)
        return self._made(item, test, found, given)

    def _clauses(self, clauses: Sequence[syntax.Clause], known: Mapping[str, str], owner: str) -> Clauses:
        """The clauses by parameter; unknown and repeated ones are reported."""
        found: dict[str, syntax.Clause] = {}
        for clause in clauses:
            name = known.get(clause.key)
            if name is None:
                self._unknown(clause, tuple(known), owner)
            elif name in found:
                self._again(clause, found[name])
            else:
                found[name] = clause
        return found

    def _again(self, clause: syntax.Clause, first: syntax.Clause) -> None:
        shown = f"`{first.key}`"
        self.report.error("RX0102", f"{shown} is given twice", clause.key_span, "given again", "delete one of the two",
                          [Label(first.key_span, "first given here")])  # fmt: skip

    def _unknown(self, clause: syntax.Clause, known: Sequence[str], owner: str) -> None:
        key = clause.key
        if refuse(self.report, f"clause {key}", clause.key_span):
            return
        takes = f"its parameters are {listed(known, 'and')}" if known else "it has no parameters"
        help_ = did_you_mean(key, known) or takes
        self.report.error("RX0101", f"`{key}` is not a parameter of {owner}", clause.key_span, help=help_)

    # --- relax QUANTITY

    def _quantity(self, item: syntax.Relax, test: syntax.Expression | None) -> Use | None:
        quantity = item.quantity or ""
        if quantity not in KNOBS:
            help_ = did_you_mean(quantity, QUANTITIES) or f"relax {listed(QUANTITIES)}"
            self.report.error("RX0103", f"`{clipped(quantity)}` is nothing that can be relaxed", item.target_span,
                              help=help_)  # fmt: skip
            return None
        knobs = KNOBS[quantity]
        given = self._knobs(item.clauses or (), knobs, quantity)
        name = knobs.form(given, self.defined.names)
        if name in knobs.in_step and is_asynchronous(given, self.defined.names):
            help_ = "take modulo(8bit), which decodes near the receiver's own value, or a delay in iterations"
            message = f"{quantity} in this codec can't be exchanged asynchronously"
            self.report.error("RX0203", message, given["late"].span, knobs.in_step[name], help_)
            return None
        (definition,) = [i for i in library.knobs(name).items if isinstance(i, syntax.Algorithm)]
        effective = self._effective(given, definition)
        made = self._made(item, test, Found(definition, Names({}, {})), effective)
        if made is not None:
            self._feedback(made, given.get("feedback"))
            self._ranges(made, knobs)
        return made

    def _ranges(self, use: Use, knobs: Knobs) -> None:
        for argument in use.arguments:
            within, value = knobs.within.get(argument.name), argument.value
            if within is not None and isinstance(value, int | float) and value not in within:
                self.report.error("RX0243", f"`{argument.name} = {value:g}` makes no sense here", argument.span,
                                  within.why, f"write a number {within.shown}")  # fmt: skip

    def _knobs(self, clauses: Sequence[syntax.Clause], knobs: Knobs, quantity: str) -> Clauses:
        known = [clause for clause in clauses if clause.key in knobs.parameters]
        for clause in clauses:
            if clause.key in knobs.idle:
                self._idle(clause, knobs.idle[clause.key])
            elif clause.key not in knobs.parameters:
                self._no_knob(clause, knobs, quantity)
        return self._clauses(known, knobs.parameters, quantity)

    def _no_knob(self, clause: syntax.Clause, knobs: Knobs, quantity: str) -> None:
        key, report = clause.key, self.report
        if key == "every" and quantity == "gradients":
            message = "gradients are exchanged in every iteration"
            help_ = "accumulate with relaxed.no_sync(), or exchange the sum of updates with `relax updates`"
            report.error("RX0111", message, clause.key_span, "not a knob of gradients", help_)
        elif not refuse(report, f"clause {key}", clause.key_span):
            help_ = did_you_mean(key, knobs.parameters) or f"its knobs are {listed(knobs.names, 'and')}"
            report.error("RX0101", f"`{key}` is not a knob of {quantity}", clause.key_span, help=help_)

    def _effective(self, given: Clauses, definition: syntax.Algorithm) -> Clauses:
        """Without those that the chosen form does not have."""
        taken = {p.name for p in definition.parameters}
        for parameter, clause in given.items():
            if parameter not in taken and parameter in WITHOUT:
                self._idle(clause, WITHOUT[parameter])
        return {parameter: clause for parameter, clause in given.items() if parameter in taken}

    def _idle(self, clause: syntax.Clause, why: str) -> None:
        self.report.warn("RX0303", f"{clause.key} has no effect here", clause.span, why, "delete it")

    def _feedback(self, use: Use, clause: syntax.Clause | None) -> None:
        values = {a.name: a.value for a in use.arguments}
        if clause is None or values.get("compress") is not None:
            return
        if values.get("feedback") not in (Feedback.NONE, Feedback.AUTO):
            self.report.warn("RX0303", "feedback has no effect here", clause.span, "nothing is lost without a codec",
                             "add `compress`, or delete it")  # fmt: skip

    # --- arguments

    def _made(self, item: syntax.Relax, test: syntax.Expression | None, found: Found, given: Clauses) -> Use | None:
        before = self.report.mistakes
        arguments = self._arguments(found, given, item.target_span)
        use = Use(item.span, test, found.definition, arguments, format.statement(item), found.names)
        if self.report.mistakes > before or not _complete(use):
            return None
        if self.defined.algorithms.get(found.definition.name) is not found.definition or (
            found.definition.name not in self.faulty
        ):
            check_values(use, self.report)
        return use

    def _arguments(self, found: Found, given: Clauses, target: Span) -> tuple[Argument, ...]:
        kinds = kinds_of(found.definition)
        made = []
        for parameter in found.definition.parameters:
            kind, clause = kinds.get(parameter.name), given.get(parameter.name)
            if clause is None and parameter.default is None:
                self.report.error("RX0107", f"{found.definition.name} needs `{parameter.name}`", target,
                                  help=f"write {parameter.name} = ...")  # fmt: skip
            elif kind is not None and (argument := self._argument(parameter, kind, clause, found)) is not None:
                made.append(argument)
        return tuple(made)

    def _argument(
        self, parameter: syntax.Parameter, kind: str, clause: syntax.Clause | None, found: Found
    ) -> Argument | None:
        before = self.report.mistakes
        names, written = (self.defined.names, clause.value) if clause else (found.names, parameter.default)
        assert written is not None, "a parameter without default was asked for"
        with self.report.noting(self.scope.use(written) if clause else ()):
            value = Reader(names, {}, self.report).value(kind, written)
        if self.report.mistakes > before or (value is None and kind != "codec"):
            return None
        return Argument(parameter.name, "number" if kind == "length" else kind, value, written.span)

    def by_default(self, definition: syntax.Algorithm) -> Use | None:
        """The use of one of the file's algorithms that no statement runs; None where it needs an argument."""
        if definition.name in self.faulty or any(p.default is None for p in definition.parameters):
            return None
        before = self.report.mistakes
        found = Found(definition, self.defined.names)
        use = Use(definition.span, None, definition, self._arguments(found, {}, definition.span),
                  f"relax with {definition.name}", found.names)  # fmt: skip
        if not _complete(use):
            return None
        if self.report.mistakes == before:
            check_values(use, self.report)
        return use if self.report.mistakes == before else None


def _complete(use: Use) -> bool:
    """Whether all parameters that the body names have a value: one made of a param with a mistake, which is reported
    there, has none."""
    given = {argument.name for argument in use.arguments}
    return given >= kinds_of(use.definition).keys()
