"""Run a benchmark's workers on hosts and read what worker 0 has to say: one JSON object, its last line."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from relaxc.demo.hosts import Hosts
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


def run_workers(hosts: Hosts, script: str, arguments: Sequence[str]) -> dict[str, Any]:
    """`python script --worker ARGUMENTS` on every host; raises `WorkerFailed`."""
    port = hosts.free_port()
    command = [sys.executable, script, "--worker", *arguments]
    workers = [start_worker(hosts, rank, port, command) for rank in range(hosts.count)]
    *_, last = lines(workers)
    result: dict[str, Any] = json.loads(last)
    return result


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
