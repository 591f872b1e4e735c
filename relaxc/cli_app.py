"""The commands that typer parses, and the list of all commands that `relaxc --help` shows."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from relaxc import __version__, cli_compile, cli_prediction, cli_report, cli_spec, cli_tune, pipeline
from relaxc.program.paths import Paths
from relaxc.program.types import Typed
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.language.source import Source
    from relaxc.schedule.profile import Profile

app = typer.Typer(name="relaxc", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

WIDE = 200
"""Columns of what is piped into something else."""

OWN_ARGUMENTS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For commands that parse their own arguments: `relaxc check` runs without this module, which only lists it."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"relaxc {__version__}")
        raise typer.Exit


@app.callback()
def relaxc(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """A compiler for relaxed exchange in PyTorch data-parallel training."""


@app.command(context_settings=OWN_ARGUMENTS, add_help_option=False)
def check(context: typer.Context) -> None:
    """Say what is wrong with specs, all at once."""
    raise typer.Exit(cli_spec.check(context.args))


@app.command("format", context_settings=OWN_ARGUMENTS, add_help_option=False)
def format_(context: typer.Context) -> None:
    """Print specs in canonical layout; comments stay."""
    raise typer.Exit(cli_spec.format_(context.args))


Spec = Annotated[str, typer.Argument(metavar="SPEC", help=cli_spec.SPEC)]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="replace the value of a param")]


def _typed(source: Source, settings: dict[str, str], workers: list[int] | tuple[int, ...]) -> tuple[Typed, Paths, bool]:
    """The program of a spec, its paths and whether these numbers of workers can do it, with what there is to say of
    that shown. Exit 1 with the spec's own errors shown where it has any."""
    typed, errors = cli_spec.attempt(partial(cli_spec.checked, source, settings))
    paths = None
    if typed is not None:
        paths, errors = cli_spec.attempt(partial(pipeline.to_paths, typed.program))
    if typed is None or paths is None:
        cli_spec.show(errors, json=False, color="auto")
        raise typer.Exit(cli_spec.WRONG_SPEC)
    judged, wrong = cli_spec.attempt(partial(pipeline.among, typed, workers or cli_spec.counts_of(typed.spec)))
    cli_spec.show(wrong if judged is None else judged.warnings, json=False, color="auto")
    return typed, paths, judged is not None


@app.command()
def explain(
    spec: Spec,
    settings: Settings = None,
    workers: Annotated[
        list[int] | None, typer.Option(help="a number of workers to show figures for; repeatable")
    ] = None,
    model: cli_prediction.Model = None,
    sample: cli_prediction.Sample = None,
    network: cli_prediction.NetworkText = None,
    cores: cli_prediction.Cores = None,
) -> None:
    """Show the program that a spec stands for, what it sends to whom, and what that costs. With a model, a sample and a
    network also its predicted iteration."""
    from relaxc.explain import explain as explained
    from relaxc.explain import explain_cluster

    cli_spec.refuse_counts(workers or ())
    source, given = cli_spec.named(spec), cli_spec.settings_of(settings)
    if network is not None:
        cli_prediction.network_of(network, None)  # refused before a model is traced and pages are printed
    profile = _profile(model, sample)
    if profile is not None and len(workers or ()) <= 1:
        source = cli_prediction.resolved(source, given, profile, network, workers or (), cores)
    typed, paths, possible = _typed(source, given, workers or ())
    if not possible and profile is not None:
        raise typer.Exit(cli_spec.WRONG_SPEC)  # there is nothing to predict
    chosen = workers or cli_spec.counts_of(typed.spec)
    typer.echo(explained(typed.program, paths, typed.facts, chosen or [2, 4, 8], chosen), nl=False)
    if typed.spec.cluster is not None:
        typer.echo(explain_cluster(typed.spec.cluster), nl=False)
    if profile is not None:
        cli_prediction.explain(typed, chosen, profile, network, cores)


def _profile(model: str | None, sample: str | None) -> Profile | None:
    """Raise UsageError where there is one of both, ModelError (RX04)."""
    if model is None and sample is None:
        return None
    if model is None or sample is None:
        raise UsageError("a prediction takes a model and what it is called with: give --model and --sample")
    return cli_prediction.profile_of(model, sample)


@app.command()
def specs() -> None:
    """List the specs that come with relaxc, a line each."""
    from rich.console import Console
    from rich.table import Table

    from relaxc.starter import described

    table = Table.grid(padding=(0, 2))
    lines = described()
    table.add_column(no_wrap=True, min_width=max(len(name) for name, _ in lines))
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, summary in lines:
        table.add_row(name, summary)
    width = None if sys.stdout.isatty() else WIDE
    Console(highlight=False, markup=False, width=width).print(table)


@app.command()
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="what it will be called; NAME.relax is written")],
    origin: Annotated[str, typer.Option("--from", metavar="SPEC", help="a spec of the library")] = "quickstart",
) -> None:
    """Start a spec of your own from one of the library."""
    from relaxc.starter import copy_of

    text = copy_of(origin, name)
    path = Path(f"{name}.relax")
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path} exists already") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    typer.echo(f"{path}, from {origin}: edit it, then `relaxc explain {path}` and `relaxc compile {path}`")


@app.command(context_settings=OWN_ARGUMENTS, add_help_option=False)
def compile(context: typer.Context) -> None:
    """Compile a spec into a plan: `plan = relaxc.load(FOLDER); plan.attach(model, optimizer)`."""
    raise typer.Exit(cli_compile.compile(context.args))


app.command()(cli_report.report)
app.command()(cli_tune.tune)


@app.command()
def doctor() -> None:
    """Say what this machine has, and what to do about what is missing."""
    from relaxc.cli_doctor import doctor as run

    run()


@app.command()
def probe(
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="where the network is written")],
) -> None:
    """Measure this cluster's links and codecs, started by torchrun on all of its workers."""
    from relaxc.cli_network import probe as run

    raise typer.Exit(run(output))


@app.command()
def simulate(
    spec: Annotated[str, typer.Argument(metavar="SPEC", help=cli_spec.SPEC)],
    task: Annotated[str, typer.Option(metavar="TASK", help="digits, quadratic, or package.module:task")],
    workers: Annotated[int | None, typer.Option(min=1, help="virtual workers (default: those of the cluster)")] = None,
    network: Annotated[
        str | None, typer.Option(metavar="NETWORK", help="'1Gbps, 200us', or a file of relaxc probe: adds time")
    ] = None,
    iterations: Annotated[int, typer.Option(min=1, help="iterations of each training")] = 300,
    seeds: Annotated[int, typer.Option(min=1, help="trainings of each spec")] = 1,
    against: Annotated[
        list[str] | None, typer.Option(metavar="SPEC", help="compare with this spec, such as allreduce; repeatable")
    ] = None,
    settings: Settings = None,
    lr: Annotated[float | None, typer.Option(help="learning rate (default: the task's)")] = None,
    momentum: Annotated[float | None, typer.Option(min=0, help="momentum (default: the task's)")] = None,
    computation: Annotated[
        float | None, typer.Option(help="seconds of an iteration without exchange (default: the task's, or 0.1)")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="a .png, .svg, .pdf, .html or .json")
    ] = None,
) -> None:
    """Train many virtual workers in this process: will this relaxation converge, and when is it faster?"""
    from relaxc.cli_simulate import Wanted
    from relaxc.cli_simulate import simulate as run

    wanted = Wanted(spec, task, workers, network, iterations, seeds, against or (), settings or (), lr, momentum,
                    computation, output)  # fmt: skip
    raise typer.Exit(run(wanted))


@app.command()
def demo(
    workers: Annotated[int, typer.Option(min=1, help="processes")] = 4,
    megabits: Annotated[float, typer.Option(min=1, help="rate of each link, Mbit/s")] = 200,
    steps: Annotated[int | None, typer.Option(min=1, help="steps of each training")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="a tiny model and few steps: does it work at all?")] = False,
) -> None:
    """Train over slow links with DistributedDataParallel, its fp16 hook and a five-line spec, and compare."""
    from relaxc.demo import run

    raise typer.Exit(run(workers=workers, megabits=megabits, steps=steps, quick=quick))
