"""Syntax tree to spec: names resolved, values evaluated, every default filled in, all mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from relaxc.language import names, syntax
from relaxc.language.diagnostics import Label
from relaxc.language.gradients import Checker
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Relaxation, Spec
from relaxc.language.unbuilt import refuse
from relaxc.language.vocabulary import QUANTITIES
from relaxc.language.words import did_you_mean, listed


def check(file: syntax.File, settings: Mapping[str, str] | None = None) -> Spec:
    """What `file` says, `settings` giving the text of values that replace those of its params.

    Raises SpecError with every mistake (RX01 names, RX02 values, RX03 combinations), in text order.
    """
    report = Report()
    scope = names.scope(file, settings or {}, report)
    local = frozenset(item.name for item in file.items if isinstance(item, syntax.Codec))
    checker = Checker(scope, local, report)
    relaxations = tuple(r for item in file.items if (r := _item(item, checker)) is not None)
    _reach(relaxations, report)
    _some_statement(file, report)
    names.unused(scope, report)
    return Spec(file.source, names.listing(scope), relaxations, report.finish())


def _item(item: syntax.Item, checker: Checker) -> Relaxation | None:
    report = checker.report
    match item:
        case syntax.Relax(quantity="gradients"):
            return checker.relaxation(item)
        case syntax.Relax():
            _other_relaxation(item, checker)
        case syntax.Algorithm():
            refuse(report, "algorithm", _header(item, "algorithm"))
        case syntax.Codec():
            refuse(report, "codec", _header(item, "codec"))
        case syntax.Cluster():
            refuse(report, "cluster", _header(item, "cluster"))
    return None


def _header(item: syntax.Item, word: str) -> Span:
    return Span(item.span.source, item.span.start, item.span.start + len(word))


def _other_relaxation(item: syntax.Relax, checker: Checker) -> None:
    for e in _expressions(item):
        checker.scope.use(e)
    what = "relax with" if item.algorithm is not None else f"relax {item.quantity}"
    if refuse(checker.report, what, item.target_span):
        return
    help_ = did_you_mean(item.quantity or "", QUANTITIES) or f"relax {listed(QUANTITIES)}"
    checker.report.error("RX0103", f"`{item.quantity}` is nothing that can be relaxed", item.target_span, help=help_)


def _expressions(item: syntax.Relax) -> Iterator[syntax.Expression]:
    if item.selector is not None:
        yield item.selector
    yield from (clause.value for clause in item.clauses or ())


def _some_statement(file: syntax.File, report: Report) -> None:
    if not any(isinstance(item, syntax.Relax) for item in file.items):
        whole = Span(file.source, 0, 0)
        report.error(
            "RX0108", "nothing is relaxed", whole, help="write `relax gradients`, for the exact mean of gradients"
        )


def _reach(relaxations: Sequence[Relaxation], report: Report) -> None:
    """Which statement governs which parameters: the first whose selector matches."""
    seen: dict[syntax.Expression | None, Relaxation] = {}
    for relaxation in relaxations:
        earlier = seen.get(None) or seen.get(relaxation.selector)
        if earlier is not None:
            _hidden(relaxation, earlier, report)
        seen.setdefault(relaxation.selector, relaxation)
    if relaxations and all(r.selector is not None for r in relaxations):
        last = relaxations[-1]
        report.warn("RX0304", "parameters that no selector matches are left ungoverned", last.span,
                    "the last statement has a selector too", "end with `relax gradients`, for all others")  # fmt: skip


def _hidden(later: Relaxation, earlier: Relaxation, report: Report) -> None:
    """`earlier` leaves nothing for `later`."""
    if earlier.selector is None:
        code, why, help_ = "RX0301", "governs every parameter", "move it above the one without a selector"
    else:
        code, why, help_ = "RX0302", "has the same selector", "merge the two"
    first = Label(_first_line(earlier.span), why)
    report.error(code, "this statement can never match", _first_line(later.span), "", help_, [first])


def _first_line(span: Span) -> Span:
    stop = span.source.text.find("\n", span.start, span.end)
    return span if stop < 0 else Span(span.source, span.start, stop)
