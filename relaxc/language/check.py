"""Syntax tree to spec: names resolved, values evaluated, every default filled in, all mistakes at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from relaxc.language import names, syntax
from relaxc.language.bodies import check_body
from relaxc.language.clusters import cluster
from relaxc.language.codec_bodies import check_codec
from relaxc.language.codecs import by_default
from relaxc.language.definitions import Definitions, definitions
from relaxc.language.diagnostics import Label
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import CodecUse, Spec, Use
from relaxc.language.uses import Checker


def check(file: syntax.File, settings: Mapping[str, str] | None = None) -> Spec:
    """What `file` says, `settings` giving the text of values that replace those of its params.

    Raises SpecError with every mistake (RX01 names, RX02 values, RX03 combinations), in text order.
    """
    report = Report()
    scope = names.scope(file, settings or {}, report)
    defined = definitions(file, scope, report)
    checker = Checker(defined, _faulty(defined, report), report)
    uses, of = _uses(file, checker), cluster(file, scope, report)
    unused = _unused(file, checker)
    codec_uses = _codecs(defined, report)
    _reach(uses, report)
    _some_statement(file, report)
    names.unused(scope, report)
    algorithms, codecs = tuple(defined.algorithms.values()), tuple(defined.codecs.values())
    listing = names.listing(scope)
    return Spec(file.source, listing, uses, algorithms, codecs, unused, codec_uses, report.finish(), of)


def _faulty(defined: Definitions, report: Report) -> frozenset[str]:
    """The names of the algorithms whose bodies have mistakes."""
    return frozenset(name for name, a in defined.algorithms.items() if not check_body(a, defined, report))


def _uses(file: syntax.File, checker: Checker) -> tuple[Use, ...]:
    statements = [item for item in file.items if isinstance(item, syntax.Relax)]
    return tuple(use for item in statements if (use := checker.use(item)) is not None)


def _unused(file: syntax.File, checker: Checker) -> tuple[Use, ...]:
    run = {item.algorithm for item in file.items if isinstance(item, syntax.Relax)}
    idle = [a for name, a in checker.defined.algorithms.items() if name not in run]
    return tuple(use for a in idle if (use := checker.by_default(a)) is not None)


def _codecs(defined: Definitions, report: Report) -> tuple[CodecUse, ...]:
    for codec in defined.codecs.values():
        check_codec(codec, report)
    if report.errors:
        return ()
    found = (by_default(codec, defined.names, report) for codec in defined.codecs.values())
    return tuple(use for use in found if use is not None)


def _some_statement(file: syntax.File, report: Report) -> None:
    if not any(isinstance(item, syntax.Relax) for item in file.items):
        whole = Span(file.source, 0, 0)
        report.error(
            "RX0108", "nothing is relaxed", whole, help="write `relax gradients`, for the exact mean of gradients"
        )


def _reach(uses: Sequence[Use], report: Report) -> None:
    """Which statement governs which parameters: the first whose selector matches."""
    seen: dict[syntax.Expression | None, Use] = {}
    for use in uses:
        earlier = seen.get(None) or seen.get(use.selector)
        if earlier is not None:
            _hidden(use, earlier, report)
        seen.setdefault(use.selector, use)
    if uses and not report.errors and all(use.selector is not None for use in uses):
        last = uses[-1]
        report.warn("RX0304", "parameters that no selector matches are left ungoverned", last.span,
                    "the last statement has a selector too", "end with `relax gradients`, for all others")  # fmt: skip


def _hidden(later: Use, earlier: Use, report: Report) -> None:
    """`earlier` leaves nothing for `later`."""
    if earlier.selector is None:
        code, why, help_ = "RX0301", "governs every parameter", "move it above the one without a selector"
    else:
        code, why, help_ = "RX0302", "has the same selector", "merge the two"
    first = Label(earlier.span.first_line, why)
    report.error(code, "this statement can never match", later.span.first_line, "", help_, [first])
