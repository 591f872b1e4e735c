"""`relaxc report`: a plan's predicted iteration as a page, and as a trace."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaxc import cli_prediction as prediction
from relaxc import pipeline
from relaxc.cli_prediction import Cores, NetworkText, Workers
from relaxc.errors import BuildError

if TYPE_CHECKING:
    from relaxc.language.spec import Cluster
    from relaxc.manifest import CodecPlan, ExchangePlan, Manifest
    from relaxc.report.page import Report
    from relaxc.schedule.profile import Profile
    from relaxc.schedule.timeline_file import TimelineFile


def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="a plan, compiled with --model and --sample")],
    output: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="the page")] = Path("report.html"),
    network: NetworkText = None,
    workers: Workers = None,
    measured: Annotated[
        Path | None, typer.Option(metavar="FILE", help="what `relaxed.profile` wrote, to lay over the prediction")
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="also a trace for Chrome or Perfetto")] = None,
    cores: Cores = None,
) -> None:
    """Write a page about a plan: the predicted iteration in lanes, its buckets, and why it is as it is."""
    from relaxc.build.plan_files import MANIFEST, read_plan
    from relaxc.manifest import decode
    from relaxc.report.page import page
    from relaxc.report.trace import trace_events

    read_plan(folder)
    manifest = decode((folder / MANIFEST).read_bytes())
    made = _report(folder, manifest, network, workers, measured, cores)
    both = {"predicted": made.predicted} | ({"measured": made.measured} if made.measured else {})
    events = [] if trace is None else [(trace, trace_events(both))]
    prediction.write((output, page(made)), *events)
    typer.echo(f"{output}: {manifest.spec}, {made.facts[0]}")
    if trace is not None:
        typer.echo(f"{trace}: open it in Perfetto (ui.perfetto.dev) or chrome://tracing")


def _report(
    folder: Path,
    manifest: Manifest,
    network_text: str | None,
    workers: int | None,
    measured: Path | None,
    cores: int | None,
) -> Report:
    from relaxc.choose import cores_of
    from relaxc.report.buckets import bucket_rows
    from relaxc.report.page import Report
    from relaxc.report.reasons import bucket_reason, moments, way_reasons
    from relaxc.report.times import shown
    from relaxc.schedule.network_text import shown as shown_network
    from relaxc.schedule.predict import Forecast

    profile = _profile(folder)
    network = prediction.network_of(network_text, _cluster(folder))
    count = prediction.workers_of(workers, network)
    forecast = Forecast(manifest, profile, count, per_machine=network.per_machine)
    timeline = forecast.over(network, cores_of(network, cores))
    of = _measured(measured, manifest, count)
    parameters = forecast.parameters
    times = f"{shown(timeline.iteration)} an iteration, {shown(timeline.exposed)} of it exposed"
    return Report(
        manifest.spec,
        (f"{count} workers over {shown_network(network)}: {times}", f"model: {profile.how}, on {profile.device}"),
        timeline, bucket_rows(manifest, profile, forecast, timeline),
        way_reasons(manifest, forecast.schedule.buckets, parameters, count, network, codecs(), exact()),
        [bucket_reason(manifest), *moments(manifest)], prediction.notes(profile), of.timeline if of else None,
    )  # fmt: skip


def _profile(folder: Path) -> Profile:
    from relaxc.schedule.profile_file import read_profile

    profile = read_profile(folder)
    if profile is None:
        raise BuildError(
            "RX0522", f"the plan {folder} has no profile of a model",
            f"compile it with one: relaxc compile SPEC --model M --sample S -o {folder}",
        )  # fmt: skip
    return profile


def _cluster(folder: Path) -> Cluster | None:
    """That of the spec that the plan was made of."""
    from relaxc.language.diagnostics import SpecError
    from relaxc.language.source import Source

    try:
        return pipeline.to_spec(Source.read(folder / "spec.relax"), {}).cluster
    except (OSError, SpecError):  # a file of edges beside it, say
        return None


def _measured(path: Path | None, manifest: Manifest, workers: int) -> TimelineFile | None:
    from relaxc.schedule.timeline_file import read_timeline

    if path is None:
        return None
    found = read_timeline(path)
    if found.hash != manifest.hash or found.workers != workers:
        other = "another plan" if found.hash != manifest.hash else f"{found.workers} workers, not {workers}"
        raise BuildError("RX0523", f"{path} was measured with {other}", "measure again, with relaxed.profile(path)")
    return found


def codecs() -> Mapping[str, ExchangePlan]:
    """What each bucket of gradients is compared with: means by codec, as the language means them."""
    from relaxc.language.automatic import CODECS

    return {name: _mean(f"compress = {name}") for name in CODECS}


def exact() -> CodecPlan:
    """What carries plain numbers where they go as messages."""
    found = _mean("route = gather").codec
    assert found is not None
    return found


def _mean(knob: str) -> ExchangePlan:
    from relaxc.language.source import Source

    manifest = pipeline.manifest_of(Source("<mean>", f"relax gradients {{ {knob} }}"), {}, "mean")
    gradient = manifest.bodies[0].gradient
    assert gradient is not None
    return gradient.exchange
