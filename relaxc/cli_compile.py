"""`relaxc compile`: part of an edit-and-run loop, so it parses its own arguments, as `check` does."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from relaxc import cli_spec, pipeline

if TYPE_CHECKING:
    from relaxc.build.targets import Targets


def compile(arguments: Sequence[str]) -> int:
    """Compile a spec into a plan's folder. Returns the exit status; raises RelaxError (RX04, RX05)."""
    options = _options(arguments)
    source, settings = cli_spec.read(options.spec), cli_spec.settings_of(options.set)
    typed, errors = cli_spec.attempt(partial(cli_spec.checked, source, settings))
    if typed is None:
        cli_spec.show(errors, json=False, color="auto")
        return cli_spec.WRONG_SPEC
    cli_spec.show(typed.warnings, json=False, color="auto")
    name = "stdin" if options.spec == cli_spec.STDIN else Path(options.spec).stem
    parameters = None
    if options.model is not None:
        from relaxc.attach.factory import parameters_of

        parameters = parameters_of(options.model)
    targets = _targets(options)
    build = partial(pipeline.build, typed.spec, settings, name, parameters, targets=targets)
    built, errors = cli_spec.attempt(build)
    cli_spec.show(errors, json=False, color="auto")
    if built is None:
        return cli_spec.WRONG_SPEC
    folder = options.output or Path("build") / name
    pipeline.deliver(built, folder, options.carry_runtime)
    sys.stdout.write(f"{folder}: compiled {source.name}\n")
    if options.verbose and targets is not None:
        sys.stdout.writelines(f"{line}\n" for line in _uses(built, targets))
    return cli_spec.OK


def _targets(options: Namespace) -> Targets | None:
    """Raises BuildError (RX05) for targets that are none."""
    if options.target is None and options.arch is None:
        return None
    from relaxc.build.targets import targets_of

    return targets_of(
        _listed("cpu" if options.target is None else options.target),
        None if options.arch is None else _listed(options.arch),
    )


def _listed(text: str) -> list[str]:
    return [part for part in text.replace(" ", "").split(",") if part]


def _uses(built: Path, targets: Targets) -> Iterator[str]:
    """What each kernel takes of a GPU, a line each."""
    from relaxc.build.cubins import CUDA_SOURCE, LOG, build_cubin, used

    source = built / CUDA_SOURCE
    for architecture in targets.architectures if source.is_file() else ():
        log = build_cubin(source.read_text(), architecture).with_name(LOG).read_text()
        for use in used(log):
            spilled = f", {use.spills} bytes spilled" if use.spills else ""
            yield f"  {architecture} {use.kernel}: {use.registers} registers{spilled}"


def _options(arguments: Sequence[str]) -> Namespace:
    parser = ArgumentParser(
        "relaxc compile", allow_abbrev=False,
        description="Compile a spec into a plan: `plan = relaxc.load(FOLDER); plan.attach(model, optimizer)`.",
    )  # fmt: skip
    parser.add_argument("spec", metavar="SPEC", help="a spec file; - is standard input")
    parser.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="the plan's folder (default: build/SPEC)")
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="replace the value of a param")
    parser.add_argument(
        "--model", metavar="PACKAGE.MODULE:FACTORY", help="make the plan for this model: kernels for its dtypes only"
    )
    parser.add_argument(
        "--carry-runtime",
        action="store_true",
        help="put the runtime's binary into the plan, for hosts without a compiler",
    )
    parser.add_argument(
        "--target", metavar="TARGETS", help="what kernels are compiled for here: cpu (the default), cuda, or cpu,cuda"
    )
    parser.add_argument(
        "--arch", metavar="ARCHITECTURES", help="of cuda (default: sm_80,sm_90,sm_100); others are made at attach"
    )
    parser.add_argument("--verbose", action="store_true", help="say what each kernel takes of a GPU")
    return parser.parse_args(arguments)
