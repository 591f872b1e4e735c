"""Diagnostics as data; `render` turns them into text or JSON.

Codes: RX00 syntax, RX01 clauses and names, RX02 values, RX03 combinations, RX04 model, RX05 build, RX06 running.
A message is lower case without a full stop and says what is; `help` says what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

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


class SpecError(Exception):
    """The user's mistake: every error that one stage found, in text order. Exit status 1."""

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(f"{d.code}: {d.message}" for d in self.diagnostics))
