"""The commands that typer parses, and the list of all commands that `relaxc --help` shows."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from relaxc import __version__, cli_compile, cli_spec, pipeline
from relaxc.language.source import Source
from relaxc.program.ir import Program
from relaxc.usage import UsageError

app = typer.Typer(name="relaxc", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)

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
    """A compiler for relaxed gradient exchange in PyTorch data-parallel training."""


@app.command(context_settings=OWN_ARGUMENTS, add_help_option=False)
def check(context: typer.Context) -> None:
    """Say what is wrong with specs, all at once."""
    raise typer.Exit(cli_spec.check(context.args))


@app.command("format", context_settings=OWN_ARGUMENTS, add_help_option=False)
def format_(context: typer.Context) -> None:
    """Print specs in canonical layout; comments stay."""
    raise typer.Exit(cli_spec.format_(context.args))


Spec = Annotated[str, typer.Argument(metavar="SPEC", help="a spec file; - is standard input")]
Settings = Annotated[list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="replace the value of a param")]


def _program(spec: str, settings: list[str] | None) -> tuple[Source, Program]:
    """The program of a spec, its warnings shown. Exit 1 with its errors shown where it has any."""
    source = cli_spec.read(spec)
    checked, errors = cli_spec.attempt(partial(pipeline.to_spec, source, cli_spec.settings_of(settings)))
    program = None
    if checked is not None:
        program, errors = cli_spec.attempt(partial(pipeline.to_program, checked))
    cli_spec.show(checked.warnings if checked is not None and program is not None else errors, json=False, color="auto")
    if program is None:
        raise typer.Exit(cli_spec.WRONG_SPEC)
    return source, program


@app.command()
def explain(
    spec: Spec,
    settings: Settings = None,
    workers: Annotated[
        list[int] | None, typer.Option(help="a number of workers to show figures for; repeatable")
    ] = None,
) -> None:
    """Show the program that a spec stands for, what it sends to whom, and what that costs."""
    from relaxc.explain import explain as explained

    counts = workers or [2, 4, 8]
    if min(counts) < 1:
        raise UsageError("--workers takes a number from 1 up")
    _, program = _program(spec, settings)
    typer.echo(explained(program, counts), nl=False)


@app.command(context_settings=OWN_ARGUMENTS, add_help_option=False)
def compile(context: typer.Context) -> None:
    """Compile a spec into a plan: `plan = relaxc.load(FOLDER); plan.attach(model, optimizer)`."""
    raise typer.Exit(cli_compile.compile(context.args))


@app.command()
def doctor() -> None:
    """Say what this machine has, and what to do about what is missing."""
    from relaxc.cli_doctor import doctor as run

    run()


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
