"""The live display: a bar for each run, and what is under way outside of the clock."""

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn

from relaxc.demo.events import Began, Ended, Evaluated, Event, Preparing, Stepped
from relaxc.demo.outcome import TITLES


class Display:
    """Shows events as they come; a context, so that the terminal is restored."""

    def __init__(self, console: Console, exchanges: Sequence[str], steps: int) -> None:
        self.progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[seconds]}"),
            TextColumn("{task.fields[held_out]}"),
            console=console,
        )
        self.tasks = {name: self._row(TITLES.get(name, name), steps) for name in exchanges}

    def _row(self, title: str, steps: int) -> TaskID:
        return self.progress.add_task(title, total=steps, start=False, seconds="", held_out="")

    def show(self, event: Event) -> None:
        match event:
            case Preparing(what):
                self.progress.console.print(what, style="dim")
            case Began(run):
                self.progress.start_task(self.tasks[run])
            case Stepped(run, step, seconds):
                task = self.tasks[run]
                total = max(step, self.progress.tasks[task].total or 0)
                self.progress.update(task, completed=step, total=total, seconds=f"{seconds:6.1f} s")
            case Evaluated(run, loss=loss):
                self.progress.update(self.tasks[run], held_out=f"held-out {loss:.3f}")
            case Ended(run):
                self.progress.stop_task(self.tasks[run])

    def __enter__(self) -> Self:
        self.progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.progress.stop()
