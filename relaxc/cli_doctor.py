"""`relaxc doctor`: the findings of doctor.py as a table."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from relaxc.doctor import Finding, State, examine

COLOURS = {State.OK: "green", State.WARN: "yellow", State.MISSING: "red"}


def doctor() -> None:
    """Say what this machine has (compiler, torch, backends, caches) and what to do about what is missing."""
    findings = examine()
    console = Console()
    console.print(table(findings))
    for finding in findings:
        if finding.help:
            console.print(f"{finding.name}: {finding.help}", highlight=False, markup=False, soft_wrap=True)


def table(findings: list[Finding]) -> Table:
    shown = Table(box=None, pad_edge=False, header_style="bold")
    shown.add_column("")
    shown.add_column("what")
    shown.add_column("found", overflow="fold")
    for finding in findings:
        colour = COLOURS[finding.state]
        shown.add_row(f"[{colour}]{finding.state}[/{colour}]", finding.name, _plain(finding.detail))
    return shown


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
