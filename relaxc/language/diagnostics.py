"""Diagnostics as data; `render` turns them into text or JSON.

Codes: RX00 syntax, RX01 clauses and names, RX02 values, RX03 combinations, RX04 model, RX05 build, RX06 running.
A message is lower case without a full stop and says what is; `help` says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from relaxc.errors import RelaxError
from relaxc.language.source import Span


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Label:
    """A place in the text, with what there is to say about it. The first label of a diagnostic is its place."""

    span: Span
    text: str = ""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    code: str
    message: str
    labels: tuple[Label, ...] = ()
    notes: tuple[str, ...] = ()
    help: str | None = None
    severity: Severity = Severity.ERROR


class SpecError(RelaxError):
    """The user's mistake: every error that one stage found, in text order. Exit status 1."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        first = self.diagnostics[0]
        super().__init__(first.code, first.message, first.help)

    def __str__(self) -> str:
        """As on the command line: what a training script shows must say where, too."""
        from relaxc.language.render import render_text

        return "\n" + render_text(self.diagnostics)
