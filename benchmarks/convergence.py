"""Does it still converge? Every spec of the library on one task, beside plain data-parallel training.

`make bench-convergence` runs what convergence.json lacks and prints the tables; stop it whenever you like. A result is
kept under what it depends on: the program that the spec stands for, its codecs and topologies, the settings, the task.
Simulated workers (the interpreter); `--processes` runs the eight cells once more in real ones.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

from convergence_settings import CELLS, ITERATIONS, Settings, settings_of
from convergence_trial import Outcome, run, told
from digits_task import SPLITS
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from relaxc.resources import folder

KEPT = Path(__file__).with_name("convergence.json")
SEEDS = (0, 1, 2)
WORKERS, CELL_WORKERS = 4, 8
BASE = "allreduce"


@dataclass(frozen=True)
class Trial:
    spec: str
    split: str
    workers: int
    seed: int
    settings: Settings
    processes: bool = False

    @property
    def name(self) -> str:
        where = "processes" if self.processes else "simulated"
        return f"{self.spec}/{self.split}/{self.workers}/{where}/{self.seed}"

    @property
    def depends_on(self) -> str:
        of = f"{told(self.settings.text or self.spec, self.workers)}{asdict(self.settings)}{ITERATIONS}"
        return hashlib.sha256(of.encode()).hexdigest()[:12]


def trials(processes: bool) -> Iterator[Trial]:
    """The library with equal data, the eight cells with both splits."""
    specs = sorted(path.stem for path in folder("specs").glob("*.relax"))
    if not processes:
        yield from (Trial(s, "equal", WORKERS, seed, settings_of(s)) for s in specs for seed in SEEDS)
    cells = [BASE, *(s for s in CELLS.values() if s != BASE)]
    seeds = SEEDS[:1] if processes else SEEDS
    yield from (
        Trial(s, split, CELL_WORKERS, seed, settings_of(s), processes)
        for s in cells
        if s in specs
        for split in SPLITS
        for seed in seeds
    )


def kept() -> dict[str, dict[str, object]]:
    return json.loads(KEPT.read_text()) if KEPT.exists() else {}


def one(trial: Trial) -> Outcome:
    return run(trial.settings, trial.spec, trial.split, trial.workers, trial.seed, trial.processes)


def fill(results: dict[str, dict[str, object]], wanted: list[Trial], jobs: int) -> None:
    """Run what is missing or has changed, and keep each result as it comes."""
    missing = [t for t in wanted if results.get(t.name, {}).get("of") != t.depends_on]
    with Progress(console=Console(stderr=True)) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("trials", total=len(missing))
        running = {pool.submit(one, trial): trial for trial in missing}
        for future in as_completed(running):
            trial = running[future]
            results[trial.name] = {"of": trial.depends_on, **asdict(future.result())}
            KEPT.write_text(json.dumps(dict(sorted(results.items())), indent=1) + "\n")
            progress.update(bar, advance=1, description=trial.name)


def losses(
    results: dict[str, dict[str, object]], wanted: list[Trial], spec: str, split: str, workers: int
) -> list[float]:
    mine = (t for t in wanted if (t.spec, t.split, t.workers) == (spec, split, workers))
    return [float(results[t.name]["loss"]) for t in mine]  # type: ignore[arg-type]


def library_table(results: dict[str, dict[str, object]], wanted: list[Trial]) -> Table:
    table = Table("spec", "held-out loss", "seeds", "to allreduce", title=f"{WORKERS} workers, equal data")
    base = losses(results, wanted, BASE, "equal", WORKERS)
    for spec in sorted({t.spec for t in wanted if t.workers == WORKERS}):
        found = losses(results, wanted, spec, "equal", WORKERS)
        apart = statistics.mean(f - b for f, b in zip(found, base, strict=True))
        table.add_row(spec, f"{statistics.mean(found):.3f}", f"{min(found):.3f} to {max(found):.3f}", f"{apart:+.3f}")
    return table


def cells_table(results: dict[str, dict[str, object]], wanted: list[Trial], where: str) -> Table:
    table = Table("cell", "spec", *SPLITS, title=f"eight cells, {CELL_WORKERS} workers, {where}: held-out loss")
    there = {t.spec for t in wanted}
    for cell, spec in CELLS.items():
        if spec in there:
            found = [statistics.mean(losses(results, wanted, spec, split, CELL_WORKERS)) for split in SPLITS]
            table.add_row(", ".join(cell), spec, *(f"{loss:.3f}" for loss in found))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", action="store_true", help="the eight cells in real processes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true", help="print what is kept, run nothing")
    arguments = parser.parse_args()
    wanted = list(trials(arguments.processes))
    results = kept()
    if not arguments.show:
        fill(results, wanted, 1 if arguments.processes else arguments.jobs)
    wanted = [t for t in wanted if t.name in results]
    console = Console(width=100)
    if not arguments.processes:
        console.print(library_table(results, wanted))
    console.print(cells_table(results, wanted, "processes" if arguments.processes else "simulated"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
