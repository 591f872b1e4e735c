"""`relaxc probe`: measure this cluster, under torchrun."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc.errors import BuildError
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.probe.assemble import Assembled

START = (
    "torchrun starts it, on every machine of the cluster: torchrun --nnodes=N --nproc-per-node=M "
    "--rdzv-backend=c10d --rdzv-endpoint=HOST:29400 -m relaxc probe -o cluster.json"
)


def probe(output: Path) -> int:
    """Measure, print, and on rank 0 write `output`. Raise UsageError where no torchrun started this."""
    if "WORLD_SIZE" not in os.environ or "RANK" not in os.environ:
        raise UsageError(START)
    first, workers = os.environ["RANK"] == "0", int(os.environ["WORLD_SIZE"])
    if workers < 2:
        raise UsageError("one worker alone has no link to measure: start two at least")
    if not output.resolve().parent.is_dir():
        raise UsageError(f"can't write {str(output)!r}: there is no folder {output.parent}")
    from relaxc.probe import run
    from relaxc.schedule.network_file import write_network

    folder = _plan()
    with run.workers():
        found = run.probe(folder, _tell if first else _nothing)
    if first:
        _show(found, workers)
        write_network(output, found.network)
        sys.stdout.write(f"{output}: written\n")
    return 0


def _tell(said: str) -> None:
    sys.stderr.write(f"relaxc probe: {said}\n")


def _nothing(_said: str) -> None:
    """What all but the first worker tell."""


def _plan() -> Path | None:
    """The plan whose kernels are measured; None on a machine without a compiler."""
    from relaxc import pipeline
    from relaxc.build.runtime import build_runtime
    from relaxc.language.source import Source
    from relaxc.probe.codings import SPEC
    from relaxc.wire.parameters import Parameter

    parameters = [Parameter(n, name, (1,), "f32") for n, name in enumerate(("exact", "bf16", "8bit", "4bit"))]
    try:
        build_runtime()
        return pipeline.build(pipeline.to_spec(Source("probe", SPEC), {}), {}, "probe", parameters)
    except BuildError as error:
        _tell(f"no codecs: {error.message}")
        return None


def _show(found: Assembled, workers: int) -> None:
    from rich.console import Console
    from rich.table import Table

    from relaxc.probe.proposal import propose
    from relaxc.units import shown_rate, shown_time

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("what", "fixed", "each", "error of the fit"):
        table.add_column(name, justify="left" if name == "what" else "right")
    for name, fit in found.fits.items():
        codec = name.startswith(("encode", "decode"))
        each = f"{fit.line.each * 1e9:.3g} ns/element" if codec else shown_rate(8 / max(fit.line.each, 1e-15))
        table.add_row(name, shown_time(fit.line.fixed), each, f"{100 * fit.error:.0f} %")
    console = Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 120)
    console.print(table)
    for line in propose(found.network, workers):
        console.print(line, soft_wrap=True)
