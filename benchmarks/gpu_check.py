"""`make gpu-check`: everything that a GPU decides, on one card and within six minutes: builds the runtime, runs each
test marked `gpu`, the benchmark of the kernels, and compute-sanitizer where that is found; prints a short table.

Status 1 where something failed, 0 where all that could run passed. What was left out is said.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUDGET = 340.0
"""Seconds for all of it, somewhat less than six minutes."""
SANITIZED = ("-k", "(one_rank_in_other_types and float64) or (every_kernel and (route_1_ or route_40_ or fragment_2))")
"""Some of the tests: under compute-sanitizer a kernel takes up to a hundred times as long."""


@dataclass(frozen=True)
class Check:
    """`most` bounds its seconds."""

    name: str
    command: tuple[str, ...]
    most: float


@dataclass(frozen=True)
class Outcome:
    name: str
    said: str
    seconds: float
    failed: bool


def checks() -> list[Check]:
    python, tests = sys.executable, ("-m", "pytest", "-q", "-m", "gpu", "tests/gpu")
    runtime = "from relaxc.build.runtime import build_runtime; build_runtime()"
    found = [
        Check("runtime", (python, "-c", runtime), 240),
        Check("tests", (python, *tests), 200),
        Check("kernels", (python, "benchmarks/gpu_kernels.py"), 60),
    ]
    if sanitizer := shutil.which("compute-sanitizer"):
        for tool in ("memcheck", "racecheck"):
            command = (sanitizer, "--tool", tool, "--target-processes", "all", "--error-exitcode", "9", python, *tests)
            found.append(Check(tool, (*command, *SANITIZED), 100))
    return found


def run(check: Check, left: float) -> Outcome:
    if left <= 5:
        return Outcome(check.name, "left out: no time", 0, failed=True)
    start = time.monotonic()
    try:
        done = subprocess.run(
            check.command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
            timeout=min(check.most, left), check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Outcome(check.name, "did not end in time", time.monotonic() - start, failed=True)
    text = done.stdout + done.stderr
    if check.name == "kernels" or done.returncode:
        print(text[-6000:], flush=True)
    last = (text.strip().splitlines() or ["done"])[-1]
    said = "done" if check.name in ("kernels", "runtime") and not done.returncode else last
    return Outcome(check.name, said, time.monotonic() - start, failed=done.returncode != 0)


def card() -> str | None:
    """Asked in another process, so that this one holds no memory of the card."""
    ask = "import torch; print(torch.cuda.get_device_name(0) if torch.cuda.is_available() else '')"
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=False)
    return done.stdout.strip() or None


def main() -> int:
    name, end = card(), time.monotonic() + BUDGET
    if name is None:
        print("no CUDA device that this torch can use: nothing was checked")
        return 1
    outcomes = [run(check, end - time.monotonic()) for check in checks()]
    print(name)
    for outcome in outcomes:
        print(f"{outcome.name:12}{'FAILED' if outcome.failed else 'passed':8}{outcome.seconds:6.0f} s  {outcome.said}")
    if len(outcomes) == 3:
        print("compute-sanitizer was not found: memcheck and racecheck were left out")
    return 1 if any(outcome.failed for outcome in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
