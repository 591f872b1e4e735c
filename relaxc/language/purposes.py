"""What each parameter of an algorithm is for, by where its body names it."""

from __future__ import annotations

from collections.abc import Iterator

from relaxc.language import syntax
from relaxc.language.diagnostics import Label
from relaxc.language.report import Report
from relaxc.language.sites import roles, sites
from relaxc.language.source import Span


def kinds_of(definition: syntax.Algorithm) -> dict[str, str]:
    """What each parameter that the body names is for: number, codec, topology, feedback, route, period, delay or length
    (of a phase)."""
    found: dict[str, str] = {}
    for name, kind, _ in _roles(definition):
        found[name] = _joined(found.get(name, kind), kind) or found[name]
    return found


NUMERIC = ("number", "length", "period", "delay")
"""Kinds that one parameter may have at once, each the stricter one."""


def _joined(a: str, b: str) -> str | None:
    if a == b:
        return a
    return max(a, b, key=NUMERIC.index) if a in NUMERIC and b in NUMERIC else None


def _roles(definition: syntax.Algorithm) -> Iterator[tuple[str, str, Span]]:
    parameters = {p.name for p in definition.parameters}
    for site in sites(definition.body):
        for kind, name in roles(site):
            if name.name in parameters:
                yield name.name, kind, name.span


def check_purposes(definition: syntax.Algorithm, report: Report) -> None:
    """Reports a parameter that stands for two things at once."""
    found: dict[str, tuple[str, Span]] = {}
    for name, kind, span in _roles(definition):
        before, first = found.setdefault(name, (kind, span))
        joined = _joined(before, kind)
        if joined is None:
            report.error("RX0119", f"`{name}` stands for a {before} and for a {kind}", span, f"a {kind} here",
                         "make it two parameters", [Label(first, f"a {before} here")])  # fmt: skip
            return
        found[name] = joined, first
