"""`relaxc tune`: which variant of a spec is predicted to be fastest here, and on which networks."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaxc import cli_prediction as prediction
from relaxc import cli_spec, pipeline
from relaxc.cli_prediction import Cores, Model, NetworkText, Sample, Workers
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from relaxc.manifest import Manifest
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.tune.grid import Variant
    from relaxc.tune.ranking import Candidate, Candidates, Map, Ranked

SHOWN = 20
"""Rows of the table."""


def tune(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=cli_spec.SPEC)],
    model: Model = None,
    sample: Sample = None,
    network: NetworkText = None,
    workers: Workers = None,
    grid: Annotated[
        list[str] | None, typer.Option(metavar="NAME=V1,V2", help="values of a param or a knob to try; repeatable")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="replace the value of a param")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", metavar="FILE.svg", help="a plot of the map")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="this network only, no map of others")] = False,
    cores: Cores = None,
) -> None:
    """Predict the variants of a spec, rank them, and show on which networks which of them pays."""
    from relaxc.choose import cores_of

    if model is None or sample is None:
        raise UsageError("tune predicts for a model: give --model and --sample")
    if output is not None and (quick or output.suffix != ".svg"):
        raise UsageError("-o takes the map as FILE.svg, and --quick makes no map")
    found, link, profile, count = _candidates(spec, settings, grid, network, workers, model, sample, cores)
    for note in prediction.notes(profile):
        typer.echo(f"note: {note}")
    of_each = cores_of(link, cores)
    _table(_ranked(found.found, profile, link, count, of_each), found)
    if not quick:
        made = _mapped(found.found, profile, link, count, of_each)
        _show_map(made, found.found, link)
        if output is not None:
            from relaxc.tune.drawing import svg_map

            prediction.write((output, svg_map(made, found.found, f"{spec}, {count} workers")))
            typer.echo(f"{output}: the map")


def _candidates(
    spec: str, settings: list[str] | None, grid: list[str] | None, network: str | None, workers: int | None, model: str,
    sample: str, cores: int | None,
) -> tuple[Candidates, Network, Profile, int]:  # fmt: skip
    """All that so many workers can do, and what they are predicted by."""
    from relaxc.choose import leaves_codec
    from relaxc.tune.grid import parsed_grid, variants
    from relaxc.tune.ranking import candidates

    source, chosen = cli_spec.named(spec), cli_spec.settings_of(settings)
    profile = None
    if leaves_codec(source):
        profile = prediction.profile_of(model, sample)
        source = prediction.resolved(source, chosen, profile, network, [] if workers is None else [workers], cores)
    typed, errors = cli_spec.attempt(partial(cli_spec.checked, source, chosen))
    if typed is None:
        cli_spec.show(errors, json=False, color="auto")
        raise typer.Exit(cli_spec.WRONG_SPEC)
    link = prediction.network_of(network, typed.spec.cluster)
    count = prediction.workers_of(workers, link)
    tried = variants(source, chosen, parsed_grid(grid or ()))
    found = candidates(tried, partial(_manifest, Path(spec).stem, count))
    if not found.found:
        raise UsageError(f"no variant is possible: {found.refused[0][1]}")
    return found, link, profile or prediction.profile_of(model, sample), count


def _manifest(name: str, workers: int, variant: Variant) -> Manifest:
    return pipeline.manifest_of(variant.source, variant.settings, name, workers)


def _ranked(found: Sequence[Candidate], profile: Profile, link: Network, workers: int, cores: int) -> list[Ranked]:
    from rich.progress import Progress

    from relaxc.tune.ranking import ranked

    with Progress(console=prediction.console(), transient=True) as progress:
        task = progress.add_task("variants", total=len(found))
        return ranked(found, profile, link, workers, cores, lambda: progress.advance(task))


def _mapped(found: Sequence[Candidate], profile: Profile, link: Network, workers: int, cores: int) -> Map:
    from rich.progress import Progress

    from relaxc.tune.ranking import BANDWIDTHS, LATENCIES, mapped

    with Progress(console=prediction.console(), transient=True) as progress:
        task = progress.add_task("networks", total=len(BANDWIDTHS) * len(LATENCIES))
        return mapped(found, profile, link, workers, cores, tell=lambda: progress.advance(task))


def _table(results: Sequence[Ranked], found: Candidates) -> None:
    from rich.table import Table

    from relaxc.report.times import shown
    from relaxc.tune.ranking import best

    answer = best({r.candidate.order: r.timeline.iteration for r in results})
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    for name in ("", "variant", "iteration", "exposed", "bound by", "staleness"):
        table.add_column(
            name, no_wrap=name != "variant", justify="right" if name in ("iteration", "exposed") else "left"
        )
    for one in results[:SHOWN]:
        line = one.timeline
        table.add_row(
            "->" if one.candidate.order == answer else "", one.candidate.variant.name, shown(line.iteration),
            shown(line.exposed), line.bound, one.candidate.staleness,
        )  # fmt: skip
    out = prediction.console()
    out.print(table)
    if len(results) > SHOWN:
        out.print(f"and {len(results) - SHOWN} slower ones")
    if found.refused:
        out.print(
            f"{len(found.refused)} variants are not possible, such as {found.refused[0][0].name}: {found.refused[0][1]}"
        )
    chosen = next(r for r in results if r.candidate.order == answer)
    if chosen.candidate.variant.plain:
        out.print("no compression is the answer here: what compresses is less than 2 % faster, or slower")


def _show_map(made: Map, found: Sequence[Candidate], link: Network) -> None:
    from relaxc.report.times import shown
    from relaxc.tune.drawing import crossovers, text_map

    out = prediction.console()
    out.print("\nwhat pays on which network:")
    out.print(text_map(made, found), end="")
    nearest = min(range(len(made.latencies)), key=lambda n: abs(made.latencies[n] - link.link.fixed))
    out.print(f"\nat a latency of {shown(made.latencies[nearest])}:")
    for line in crossovers(made, found, nearest):
        out.print(f"  {line}")
