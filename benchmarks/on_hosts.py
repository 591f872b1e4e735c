"""Run a benchmark's workers on hosts and read what worker 0 has to say: one JSON object, its last line."""

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from relaxc.demo.hosts import Hosts, Unavailable
from relaxc.demo.supervisor import lines, start_worker


@dataclass(frozen=True)
class Figure:
    """A ratio that was asked for and the one that was measured."""

    what: str
    asked: float
    measured: float
    at_most: bool = False

    @property
    def met(self) -> bool:
        return self.measured <= self.asked if self.at_most else self.measured >= self.asked


def pin_to_a_core(rank: int) -> None:
    """Give this worker, and the threads it starts from here on, one core; where workers are more, they share it."""
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cores[rank % len(cores)]})


def run_workers(hosts: Hosts, script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """`python script --worker ARGUMENTS` on every host; raises `WorkerFailed`."""
    port = hosts.free_port()
    command = [sys.executable, script, "--worker", *arguments]
    workers = [start_worker(hosts, rank, port, command) for rank in range(hosts.count)]
    *_, last = lines(workers)
    result: dict[str, Any] = json.loads(last)
    return result


def main(about: str | None, worker: Callable[[], None], figures: Callable[[], list[Figure]]) -> int:
    """A benchmark's command line: `--worker` on a host, else the figures, `--json` for other programs."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        return 0
    try:
        return show(figures(), arguments.json)
    except Unavailable as error:
        sys.exit(f"hosts cannot be made here, so nothing was measured: {error}")


def show(figures: Sequence[Figure], as_json: bool) -> int:
    """Print them; 0 where each is met."""
    if as_json:
        print(json.dumps([{**asdict(figure), "met": figure.met} for figure in figures], indent=2))
    else:
        for figure in figures:
            bound = "at most" if figure.at_most else "at least"
            verdict = "" if figure.met else "  NOT MET"
            print(f"{figure.what:<66} asked {bound} {figure.asked:.2f}   measured {figure.measured:.3f}{verdict}")
    return 0 if all(figure.met for figure in figures) else 1
