"""How long the commands take that are run on each edit: check against the bare imports, compile against check."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from on_hosts import Figure, show

from relaxc.build.compiler import find
from relaxc.build.flags import KERNEL_FLAGS
from relaxc.resources import folder

ROUNDS = 15
COLD_ROUNDS = 3
SPEC = folder("specs") / "quickstart.relax"
IMPORTS = ["-c", "import typer, rich, lark"]
CHECK = ["-m", "relaxc", "check", str(SPEC)]


def seconds(arguments: list[str], environment: Mapping[str, str]) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def compile_command(output: Path) -> list[str]:
    return ["-m", "relaxc", "compile", str(SPEC), "-o", str(output)]


def warm(folder_: Path, environment: Mapping[str, str]) -> tuple[float, float]:
    """Medians of paired ratios: check to imports, cached compile to check."""
    commands = (IMPORTS, CHECK, compile_command(folder_ / "plan"))
    rounds = [[seconds(command, environment) for command in commands] for _ in range(ROUNDS + 1)][1:]
    return (
        statistics.median(check / imports for imports, check, _ in rounds),
        statistics.median(compiled / check for _, check, compiled in rounds),
    )


def cold(folder_: Path, environment: Mapping[str, str]) -> float:
    """Seconds of a compile with an empty plan and kernel cache beyond one run of the compiler on the same source."""
    beyond = []
    for _ in range(COLD_ROUNDS):
        for kind in ("plans", "kernels"):
            shutil.rmtree(folder_ / "cache" / kind, ignore_errors=True)
        taken = seconds(compile_command(folder_ / "plan"), environment)
        beyond.append(taken - _compiler_seconds(folder_))
    return statistics.median(beyond)


def _compiler_seconds(folder_: Path) -> float:
    source = folder_ / "plan" / "kernels.cpp"
    include = f"-I{folder('runtime')}"
    start = time.perf_counter()
    subprocess.run([*find().command, *KERNEL_FLAGS, include, str(source), "-o", str(folder_ / "again.so")], check=True)
    return time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        environment["RELAXC_CACHE"] = str(where / "cache")
        check, compiled = warm(where, environment)
        return show(
            [
                Figure("check to importing typer, rich and lark", 1.5, check, at_most=True),
                Figure("cached compile to check", 2.0, compiled, at_most=True),
                Figure("cold compile beyond one compiler run, seconds", 1.0, cold(where, environment), at_most=True),
            ],
            arguments.json,
        )


if __name__ == "__main__":
    sys.exit(main())
