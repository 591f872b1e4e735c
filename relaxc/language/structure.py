"""The order of an algorithm's statements: how often a path steps, which phases there are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.language import syntax
from relaxc.language.diagnostics import Label
from relaxc.language.places import name_span
from relaxc.language.report import Report
from relaxc.language.sites import inside
from relaxc.language.source import Span

Body = Sequence[syntax.Statement]


def check_structure(body: Body, report: Report) -> None:
    path = _most_steps(body)
    if len(path) > 1:
        report.error("RX0116", "a second `step` on one path", path[1].span, "the optimiser would run twice",
                     "an iteration steps once at most", [Label(path[0].span, "the first")])  # fmt: skip
    _phases(body, report)


def _most_steps(body: Body) -> list[syntax.Step]:
    """The steps of a path that has as many as any; of phases with different names, one at most runs."""
    common: list[syntax.Step] = []
    by_phase: dict[str, list[syntax.Step]] = {}
    for s in body:
        if isinstance(s, syntax.Step):
            common.append(s)
        elif isinstance(s, syntax.Phase):
            by_phase.setdefault(s.name, []).extend(_most_steps(s.body))
        else:
            common += _most_steps(inside(s))
    of_a_phase = max(by_phase.values(), key=len, default=[])
    return sorted([*common, *of_a_phase], key=lambda step: step.span.start)


def _phases(body: Body, report: Report) -> None:
    """Phases follow one another in text order; blocks with the same name are one phase; the last has no length."""
    first: dict[str, syntax.Phase] = {}
    for phase in (s for s in body if isinstance(s, syntax.Phase)):
        earlier = first.get(phase.name)
        if earlier is None:
            _reached(phase, list(first.values()), report)
            first[phase.name] = phase
        elif phase.length is not None and phase.length != earlier.length:
            report.error("RX0117", f"two lengths of the phase `{phase.name}`", phase.length.span, "",
                         "blocks with one name are one phase: leave the second length out",
                         [Label(_header(earlier), "it begins here")])  # fmt: skip
    for nested in _nested(body):
        _phases(nested, report)


def _reached(phase: syntax.Phase, before: Sequence[syntax.Phase], report: Report) -> None:
    endless = next((p for p in before if p.length is None), None)
    if endless is not None:
        report.error("RX0117", f"the phase `{phase.name}` is never reached", _header(phase), "",
                     f"give `{endless.name}` a length: phase {endless.name} for 1000 {{ ... }}",
                     [Label(_header(endless), "this phase has no end")])  # fmt: skip


def _header(phase: syntax.Phase) -> Span:
    return name_span(phase, "phase")


def _nested(body: Body) -> Iterator[Body]:
    for s in body:
        if isinstance(s, syntax.Every | syntax.After | syntax.Phase):
            yield s.body
