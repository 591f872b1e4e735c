"""The command line: which command, and how each ending becomes an exit status.

0 done; 1 the spec has a mistake, or what it needs is not there; 2 the command was used wrongly; 70 a bug in relaxc.
Typer and rich are imported only where a command uses them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from relaxc import __version__, cli_compile, cli_spec
from relaxc.errors import RelaxError
from relaxc.usage import UsageError

USAGE, BUG, INTERRUPTED = 2, 70, 130

QUICK: dict[str, Callable[[Sequence[str]], int]] = {
    "check": cli_spec.check, "format": cli_spec.format_, "compile": cli_compile.compile,
}  # fmt: skip
"""Commands that parse their own arguments; cli_app has all others."""


def main() -> None:
    """Run the command line and exit. Whatever was not foreseen ends with status 70 and a dump, without a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without UTF-8 is no reason to fail
    sys.exit(status(sys.argv[1:]))


def status(arguments: Sequence[str]) -> int:
    """Run one command; its exit status. What went wrong is on standard error."""
    try:
        return run(arguments)
    except UsageError as error:
        return _failed(USAGE, f"relaxc: {error}")
    except RelaxError as error:
        advice = f"\n  = help: {error.help}" if error.help else ""
        return _failed(cli_spec.WRONG_SPEC, f"error[{error.code}]: {error.message}{advice}")
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains when it flushes at exit
        return cli_spec.WRONG_SPEC
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the last resort: a bug gets a dump, the user gets one line
        return _failed(BUG, dumped(error))


def run(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] in QUICK:
        done = QUICK[arguments[0]](arguments[1:])
        sys.stdout.flush()
        return done
    from relaxc.cli_app import app

    app(args=list(arguments), prog_name="relaxc")
    return cli_spec.OK


def _failed(status: int, text: str) -> int:
    sys.stderr.write(f"{text}\n")
    return status


def dumped(error: Exception) -> str:
    """One line about a bug, and where the rest is."""
    import platform
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    facts = f"relaxc {__version__}, Python {platform.python_version()}, {platform.platform()}\n{sys.argv}\n\n{text}"
    summary = f"relaxc: internal error: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    try:
        handle, path = tempfile.mkstemp(prefix="relaxc-bug-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(facts)
    except OSError as unwritable:
        return f"{summary}; the dump could not be written ({unwritable.strerror})"
    return f"{summary}; please report it with {path}"
