"""What a stage collects while it goes on after a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from relaxc.language.diagnostics import Diagnostic, Label, Severity, SpecError
from relaxc.language.source import Span

MAX_SHOWN = 100
"""As many errors, and as many warnings, of one file are reported."""


@dataclass(slots=True)
class Report:
    """Errors and warnings in the order found. `notes` are added to each error made while `noting` is open."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    mistakes: int = 0
    """How often an error was reported, repeated ones too."""
    _known: set[tuple[str, str, str, int, int]] = field(default_factory=set)

    def error(self, code: str, message: str, span: Span, label: str = "", help: str | None = None,
              also: Sequence[Label] = ()) -> None:  # fmt: skip
        self.mistakes += 1
        self._add(self.errors, Diagnostic(code, message, (Label(span, label), *also), self.notes, help))

    def take(self, error: Diagnostic) -> None:
        """An error that another report has found."""
        self.mistakes += 1
        self._add(self.errors, error)

    def warn(self, code: str, message: str, span: Span, label: str = "", help: str | None = None) -> None:
        place = (Label(span, label),)
        self._add(self.warnings, Diagnostic(code, message, place, self.notes, help, Severity.WARNING))

    def _add(self, found: list[Diagnostic], new: Diagnostic) -> None:
        """A body that several statements run is reported once."""
        span = new.labels[0].span
        key = (new.code, new.message, span.source.name, span.start, span.end)
        if key not in self._known:
            self._known.add(key)
            found.append(new)

    @contextmanager
    def noting(self, notes: Sequence[str]) -> Iterator[None]:
        before, self.notes = self.notes, (*self.notes, *notes)
        try:
            yield
        finally:
            self.notes = before

    def finish(self) -> tuple[Diagnostic, ...]:
        """The warnings. Raises SpecError where there are errors; the warnings then follow the errors."""
        warnings = shortened(_ordered(self.warnings), "warnings")
        if self.errors:
            raise SpecError([*shortened(_ordered(self.errors), "errors"), *warnings])
        return tuple(warnings)


def shortened(diagnostics: list[Diagnostic], what: str) -> list[Diagnostic]:
    """As many as anybody reads; the last one says that there are more."""
    if len(diagnostics) <= MAX_SHOWN:
        return diagnostics
    last = diagnostics[MAX_SHOWN - 1]
    return [*diagnostics[: MAX_SHOWN - 1], replace(last, notes=(*last.notes, f"there are more {what} after this one"))]


def _ordered(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda d: d.labels[0].span.start)
