"""`relaxc check` and `relaxc format`, and what every command that takes a spec is made of.

They are run on each save of a file, so they do without typer: its import and its command table take longer than the
check itself. argparse comes with Python and takes 6 ms.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from relaxc.units import MOST_WORKERS
from relaxc.usage import UsageError

if TYPE_CHECKING:
    from relaxc.language.diagnostics import Diagnostic
    from relaxc.language.source import Source
    from relaxc.language.spec import Spec
    from relaxc.program.types import Typed

STDIN = "-"
SPEC = "a spec file, or the name of a spec of the library; - is standard input"
"""What most commands take."""
OK, WRONG_SPEC = 0, 1

T = TypeVar("T")


def check(arguments: Sequence[str]) -> int:
    """Say what is wrong with specs, all at once. Returns the exit status."""
    parser = _parser("check", "Say what is wrong with specs, all at once.", SPEC)
    parser.add_argument("--set", action="append", metavar="NAME=VALUE", help="replace the value of a param")
    parser.add_argument("--workers", type=int, action="append", metavar="N",
                        help="also what depends on the number of workers; repeatable")  # fmt: skip
    options = parser.parse_args(arguments)
    refuse_counts(options.workers or ())
    sources, settings = [named(name) for name in options.specs], settings_of(options.set)
    results = [attempt(partial(checked, source, settings, options.workers or ())) for source in sources]
    shown = [d for judged, errors in results for d in (errors if judged is None else judged.warnings)]
    show(shown, options.json, options.color)
    if not options.json:
        judged_ones = zip(sources, results, strict=True)
        sys.stdout.writelines(f"{s.name}: ok\n" for s, (judged, _) in judged_ones if judged is not None)
    return WRONG_SPEC if any(judged is None for judged, _ in results) else OK


def format_(arguments: Sequence[str]) -> int:
    """Print specs in canonical layout, write them back, or name those that differ. Returns the exit status."""
    options = _format_options(arguments)
    sources = [read(name) for name in options.specs]
    results = [attempt(partial(formatted, source)) for source in sources]
    show([d for _, errors in results for d in errors], options.json, options.color)
    changed = False
    for name, source, (text, _) in zip(options.specs, sources, results, strict=True):
        if text is not None:
            changed |= deliver(name, source, text, options.check, options.write)
    broken = any(text is None for text, _ in results)
    return WRONG_SPEC if broken or (options.check and changed) else OK


def _format_options(arguments: Sequence[str]) -> Namespace:
    parser = _parser("format", "Print specs in canonical layout; comments stay.", "a spec file; - is standard input")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="only name the files that would change; status 1 if any")
    what.add_argument("--write", "-w", action="store_true", help="write the files back")
    return parser.parse_args(arguments)


def _parser(command: str, description: str, help: str) -> ArgumentParser:
    parser = ArgumentParser(f"relaxc {command}", description=description, allow_abbrev=False)
    parser.add_argument("specs", nargs="+", metavar="SPEC", help=help)
    parser.add_argument("--json", action="store_true", help="print diagnostics as JSON on standard output")
    parser.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto")
    return parser


# --- what commands are made of


def named(name: str) -> Source:
    """The spec in file `name`, or of that name in the library; standard input for `-`. Raises UsageError where it can't
    be read."""
    from relaxc.resources import spec_path

    path = spec_path(name)
    if name.isidentifier() and not path.exists():
        raise UsageError(f"there is no file {name!r}, and the library has no spec of that name{_nearest(name)}")
    return read(str(path))


def _nearest(name: str) -> str:
    from relaxc.language.words import did_you_mean
    from relaxc.resources import folder

    return f": {meant}" if (meant := did_you_mean(name, [p.stem for p in folder("specs").glob("*.relax")])) else ""


def read(name: str) -> Source:
    """The spec in file `name`; standard input for `-`. Raises UsageError where it can't be read."""
    from relaxc.language.source import Source, decode

    if name == STDIN:
        return Source("<stdin>", decode(sys.stdin.buffer.read()))
    try:
        return Source.read(Path(name))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"can't read {name!r}: {reason.lower()}") from error


def settings_of(written: Sequence[str] | None) -> dict[str, str]:
    """`--set` options as text by name. Raises UsageError for one without `=`."""
    settings = {}
    for setting in written or ():
        name, equals, value = setting.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--set takes NAME=VALUE, such as --set width=4bit, but got {setting!r}")
        settings[name.strip()] = value
    return settings


def checked(source: Source, settings: dict[str, str], workers: Sequence[int] = ()) -> Typed:
    """What `relaxc check` finds no mistake in. Raises SpecError with all mistakes of the first stage that finds one."""
    from relaxc import pipeline

    typed = pipeline.to_typed(pipeline.to_spec(source, settings))
    pipeline.try_paths(typed.program)
    counts = workers or counts_of(typed.spec)
    return pipeline.among(typed, counts) if counts else typed


def counts_of(spec: Spec) -> list[int]:
    """The number of workers that the spec's own cluster has, if it says so."""
    return [] if spec.cluster is None or spec.cluster.workers is None else [spec.cluster.workers]


def refuse_counts(workers: Sequence[int]) -> None:
    """Raise UsageError for what is no number of workers."""
    if not all(1 <= count <= MOST_WORKERS for count in workers):
        raise UsageError(f"--workers takes a number from 1 to {MOST_WORKERS}")


def formatted(source: Source) -> str:
    from relaxc.language.format import format
    from relaxc.language.parse import parse

    return format(parse(source))


def attempt(make: Callable[[], T]) -> tuple[T | None, tuple[Diagnostic, ...]]:
    """What `make` returns and no errors, or nothing and the errors of the spec."""
    from relaxc.language.diagnostics import SpecError

    try:
        return make(), ()
    except SpecError as error:
        return None, error.diagnostics


def show(diagnostics: Sequence[Diagnostic], json: bool, color: str) -> None:
    """Text on standard error, or JSON on standard output."""
    if not json and not diagnostics:
        return
    from relaxc.language import render

    if json:
        sys.stdout.write(render.render_json(diagnostics))
    else:
        sys.stderr.write(render.render_text(diagnostics, colored(color)))


def colored(color: str) -> bool:
    if color == "auto":
        return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color == "always"


def deliver(name: str, source: Source, text: str, check_only: bool, write: bool) -> bool:
    """Print, write or only name the formatted text of one file; whether it differs from what was there."""
    changed = text != source.text
    if check_only:
        if changed:
            sys.stdout.write(f"{source.name}: would change\n")
    elif write and name != STDIN:
        if changed:
            rewrite(Path(name), text)
    else:
        sys.stdout.flush()
        sys.stdout.buffer.write(text.encode())
    return changed


def rewrite(path: Path, text: str) -> None:
    """Replace the file, or leave it as it was. Raises UsageError where it can't be written."""
    import shutil
    import tempfile

    target = path.resolve()
    try:
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(text.encode())
            shutil.copymode(target, temporary)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink()
            raise
    except OSError as error:
        raise UsageError(f"can't write {str(path)!r}: {(error.strerror or str(error)).lower()}") from error
