"""What commands that predict are made of: the model's profile, the network, the number of workers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaxc import cli_spec, pipeline
from relaxc.units import MOST_WORKERS
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from relaxc.language.source import Source
    from relaxc.language.spec import Cluster
    from relaxc.program.types import Typed
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.schedule.timeline import Timeline

WIDE = 160
"""Columns of what is piped into something else."""

Model = Annotated[str | None, typer.Option(metavar="PACKAGE.MODULE:FACTORY", help="the model to predict for")]
Sample = Annotated[
    str | None, typer.Option(metavar="SHAPES|PACKAGE.MODULE:BATCH", help='what it is called with: "f32[8,3,32,32]"')
]
NetworkText = Annotated[
    str | None, typer.Option("--network", metavar="TEXT|FILE", help='"1Gbps, 200us", or what relaxc probe wrote')
]
Workers = Annotated[int | None, typer.Option(min=1, max=MOST_WORKERS, help="how many workers")]
Cores = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="cores of each worker: with one, coding and computing take turns",
        show_default="as if machines were like this one",
    ),
]


def profile_of(model: str, sample: str) -> Profile:
    """Raise UsageError, ModelError (RX04)."""
    from relaxc.attach.factory import model_of
    from relaxc.schedule.trace import parse_sample, trace

    return trace(model_of(model), parse_sample(sample))


def network_of(text: str | None, cluster: Cluster | None) -> Network:
    """What `--network` says, or the spec's own cluster. Raise ModelError (RX044x), UsageError where there is none."""
    from relaxc.schedule.network_clause import network_of as of_cluster
    from relaxc.schedule.network_text import parse_network

    if text is not None:
        return parse_network(text)
    if cluster is None:
        raise UsageError('no network: give --network "1Gbps, 200us", or a cluster { } in the spec')
    return of_cluster(cluster)


def workers_of(workers: int | None, network: Network) -> int:
    """Raise UsageError where nobody says how many, ModelError (RX0442) where two say different things, or where they
    don't fill the network's machines."""
    from relaxc.schedule.network_file import require_workers

    found = network.workers if workers is None else workers
    if found is None:
        raise UsageError("no number of workers: give --workers")
    require_workers(network, found)
    return found


def console() -> Console:
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else WIDE)


def show_timeline(timeline: Timeline, how: str) -> None:
    """A table and a small chart of lanes."""
    from rich.table import Table

    from relaxc.report.chart import chart, summary

    table = Table.grid(padding=(0, 2))
    for name, value in summary(timeline):
        table.add_row(name, value)
    out = console()
    out.print(f"\npredicted: {how}")
    out.print(table)
    out.print(chart(timeline), end="")


def resolved(
    source: Source, settings: dict[str, str], profile: Profile, network: str | None, workers: Sequence[int],
    cores: int | None,
) -> Source:  # fmt: skip
    """With what `relaxc compile` would choose, which is told. Exit 1 with the spec's errors shown where it has any."""
    from relaxc.choose import resolved as chosen

    def among(cluster: Cluster | None) -> tuple[Network, int]:
        link = network_of(network, cluster)
        return link, workers_of(workers[0] if workers else None, link)

    found, errors = cli_spec.attempt(partial(chosen, source, settings, "explained", profile, among, typer.echo, cores))
    if found is None:
        cli_spec.show(errors, json=False, color="auto")
        raise typer.Exit(cli_spec.WRONG_SPEC)
    return found


def explain(typed: Typed, workers: Sequence[int], profile: Profile, network: str | None, cores: int | None) -> None:
    """The predicted iteration for each number of workers, of the plan as `relaxc compile` fits it. Raise UsageError,
    ModelError (RX04)."""
    from relaxc.choose import cores_of
    from relaxc.schedule.fit import fit, with_fit
    from relaxc.schedule.network_text import shown
    from relaxc.schedule.predict import slowest

    link = network_of(network, typed.spec.cluster)
    manifest = pipeline.to_manifest(typed, "explained")
    for count in workers or [workers_of(None, link)]:
        fitted = with_fit(manifest, fit(manifest, profile, link, workers_of(count, link)))
        show_timeline(
            slowest(fitted, profile, link, count, cores_of(link, cores)), f"{count} workers over {shown(link)}"
        )
    for note in notes(profile):
        typer.echo(f"  note: {note}")


def write(*files: tuple[Path, str]) -> None:
    """All or, where it is clear beforehand that one can't be written, none. Raise UsageError then."""
    for path, _ in files:
        if path.is_dir():
            raise UsageError(f"can't write {str(path)!r}: it is a folder")
        if not path.parent.is_dir():
            raise UsageError(f"can't write {str(path)!r}: there is no folder {str(path.parent)!r}")
    for path, text in files:
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise UsageError(f"can't write {str(path)!r}: {(error.strerror or str(error)).lower()}") from error


def notes(profile: Profile) -> list[str]:
    """What the figures don't hold for."""
    found = []
    if profile.estimated:
        found.append("times of the model are estimates from its operations and bytes, not measured")
    if profile.late_gradients:
        found.append("the model is compiled as a whole, so gradients come at the end of backward: nothing overlaps")
    return found
