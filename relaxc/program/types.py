"""The typing stage: Spec -> a program that makes sense, with what is known of it and what to be warned of."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaxc.language.diagnostics import Diagnostic
from relaxc.language.report import Report
from relaxc.language.spec import Spec, Use
from relaxc.program.checks.asynchronous import check_asynchronous
from relaxc.program.checks.codes import check_codes
from relaxc.program.checks.guards import check_guards
from relaxc.program.checks.judged import Judged, judge
from relaxc.program.checks.lateness import check_lateness
from relaxc.program.checks.low_rank import check_low_rank
from relaxc.program.checks.mixing import check_mixing
from relaxc.program.checks.order import check_order
from relaxc.program.checks.replicas import check_replicas
from relaxc.program.checks.settling import check_settling
from relaxc.program.checks.shares import check_shares
from relaxc.program.checks.trees import check_trees
from relaxc.program.facts import Facts, facts_of
from relaxc.program.ir import Body, Program
from relaxc.program.lower import lower_uses
from relaxc.program.lower_expressions import Codecs

CHECKS = (
    check_order, check_guards, check_codes, check_lateness, check_asynchronous, check_mixing, check_replicas,
    check_shares, check_trees, check_low_rank,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Typed:
    """`facts` has those of each body of `program`, in order. `warnings` are all, those of the spec too."""

    spec: Spec
    program: Program
    facts: tuple[Facts, ...]
    warnings: tuple[Diagnostic, ...]


def typed(spec: Spec) -> Typed:
    """Lower and judge every use of an algorithm, and with its defaults every one that the file defines and nobody uses.

    Raises SpecError with all errors of lowering, else with all errors of typing, in text order.
    """
    report = Report(warnings=list(spec.warnings))
    program = lower_uses(spec.uses, report)
    others = lower_uses(spec.unused, report)
    codecs = Codecs(report)
    for codec in spec.codec_uses:
        codecs.lowered(codec)
    report.errors = _each_once(report.errors)
    report.finish()
    for use, body in zip((*spec.uses, *spec.unused), (*program.bodies, *others.bodies), strict=True):
        with report.noting(_origin(use)):
            check_body(body, report)
    report.errors, report.warnings = _each_once(report.errors), _each_once(report.warnings)
    return Typed(spec, program, tuple(facts_of(body) for body in program.bodies), report.finish())


def check_body(body: Body, report: Report) -> Judged:
    """Everything that is wrong or doubtful in one body."""
    judged, before = judge(body), report.mistakes
    for check in CHECKS:
        check(judged, report)
    if report.mistakes == before:
        check_settling(judged, report)
    return judged


def _origin(use: Use) -> tuple[str, ...]:
    """Where names come from that the user has not written."""
    if use.definition.span.source is use.span.source:
        return ()
    return (f"in {use.definition.span.source.name}",)


def _each_once(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Two uses of one algorithm have its mistakes in common."""
    return list(dict.fromkeys(diagnostics))
