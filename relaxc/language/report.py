"""What a stage collects while it goes on after a mistake."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from relaxc.language.diagnostics import Diagnostic, Label, Severity, SpecError
from relaxc.language.source import Span


@dataclass(slots=True)
class Report:
    """Errors and warnings in the order found. `notes` are added to each error made while `noting` is open."""

    errors: list[Diagnostic] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    notes: tuple[str, ...] = ()

    def error(self, code: str, message: str, span: Span, label: str = "", help: str | None = None,
              also: Sequence[Label] = ()) -> None:  # fmt: skip
        self.errors.append(Diagnostic(code, message, (Label(span, label), *also), self.notes, help))

    def warn(self, code: str, message: str, span: Span, label: str = "", help: str | None = None) -> None:
        place = (Label(span, label),)
        self.warnings.append(Diagnostic(code, message, place, self.notes, help, Severity.WARNING))

    @contextmanager
    def noting(self, notes: Sequence[str]) -> Iterator[None]:
        before, self.notes = self.notes, (*self.notes, *notes)
        try:
            yield
        finally:
            self.notes = before

    def finish(self) -> tuple[Diagnostic, ...]:
        """The warnings. Raises SpecError where there are errors; the warnings then follow the errors."""
        if self.errors:
            raise SpecError([*_ordered(self.errors), *_ordered(self.warnings)])
        return tuple(_ordered(self.warnings))


def _ordered(diagnostics: list[Diagnostic]) -> list[Diagnostic]:
    return sorted(diagnostics, key=lambda d: d.labels[0].span.start)
