"""`relaxc compile`: part of an edit-and-run loop, so it parses its own arguments, as `check` does."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from relaxc import cli_spec, pipeline


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
    built, errors = cli_spec.attempt(partial(pipeline.build, typed.spec, settings, name, parameters))
    cli_spec.show(errors, json=False, color="auto")
    if built is None:
        return cli_spec.WRONG_SPEC
    folder = options.output or Path("build") / name
    pipeline.deliver(built, folder, options.carry_runtime)
    sys.stdout.write(f"{folder}: compiled {source.name}\n")
    return cli_spec.OK


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
    return parser.parse_args(arguments)
