"""Start the workers, hand on what they report, and end the demo when one of them dies or says nothing for too long."""

import os
import selectors
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

from relaxc.demo.events import Event, Preparing, from_line
from relaxc.demo.hosts import Hosts
from relaxc.demo.settings import Settings

SILENCE = 120.0
"""Seconds without a word from a worker while it trains."""
PREPARATION = 600.0
"""Seconds while it imports, and builds what is built once."""
LAST_LINES = 15
GRACE = 1.0
"""Seconds for a worker's fellows to end of the same cause, so that they are told of as well."""
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TORCH_CPP_LOG_LEVEL": "ERROR"}
"""One thread a worker: several share a core here. No warnings of c10d that a host's name cannot be looked up."""


class WorkerFailed(Exception):
    """A worker died or fell silent; the text holds the last lines of its standard error."""


@dataclass
class Worker:
    rank: int
    process: "subprocess.Popen[bytes]"
    errors: IO[bytes]

    def last_lines(self) -> str:
        return "\n".join(self._said()[-LAST_LINES:])

    def last_word(self) -> str:
        return f"worker {self.rank}: {''.join(self._said()[-1:])}"

    def _said(self) -> list[str]:
        self.errors.seek(0)
        return self.errors.read().decode(errors="replace").splitlines()

    def failure(self, what: str) -> WorkerFailed:
        return WorkerFailed(f"worker {self.rank} {what}; its last lines:\n{self.last_lines()}")


def start(hosts: Hosts, settings: Settings, exchanges: Sequence[str]) -> list[Worker]:
    port = hosts.free_port()
    command = [sys.executable, "-m", "relaxc.demo.worker"]
    command += ["--settings", settings.to_json(), "--exchanges", ",".join(exchanges)]
    return [start_worker(hosts, rank, port, command) for rank in range(hosts.count)]


def start_worker(hosts: Hosts, rank: int, port: int, command: Sequence[str]) -> Worker:
    """Start a command as one worker of a torch.distributed job; benchmarks use it too."""
    errors = tempfile.TemporaryFile()  # noqa: SIM115 - it has no name, and lives as long as the worker's record
    environment = {**ENVIRONMENT, **hosts.rendezvous(rank, port)}
    stdout = subprocess.PIPE if rank == 0 else errors
    return Worker(rank, hosts.spawn(rank, command, env=environment, stdout=stdout, stderr=errors), errors)


def events(workers: Sequence[Worker]) -> Iterator[Event]:
    """What worker 0 reports until all have ended well; raises `WorkerFailed`."""
    for line in lines(workers):
        event = from_line(line)
        if event is not None:
            yield event


def lines(workers: Sequence[Worker]) -> Iterator[str]:
    """Lines of worker 0's output until all workers have ended well; raises `WorkerFailed`."""
    yield from _output(workers)
    _finish(workers)


def _output(workers: Sequence[Worker]) -> Iterator[str]:
    """Lines until worker 0 closes its output, with an eye on all workers meanwhile."""
    stdout = workers[0].process.stdout
    assert stdout is not None
    rest, heard, patience = b"", time.monotonic(), PREPARATION
    with selectors.DefaultSelector() as selector:
        selector.register(stdout, selectors.EVENT_READ)
        while True:
            if selector.select(timeout=0.25):
                chunk = os.read(stdout.fileno(), 1 << 16)
                if not chunk:
                    return
                heard = time.monotonic()
                *complete, rest = (rest + chunk).split(b"\n")
                for line in complete:
                    text = line.decode(errors="replace")
                    patience = PREPARATION if isinstance(from_line(text), Preparing) else SILENCE
                    yield text
            _check(workers, time.monotonic() - heard, patience)


def _check(workers: Sequence[Worker], silent: float, patience: float) -> None:
    if _failed(workers):
        time.sleep(GRACE)
        raise _cause(_failed(workers))
    if silent > patience:
        raise workers[0].failure(f"has said nothing for {silent:.0f} s")


def _failed(workers: Sequence[Worker]) -> list[Worker]:
    return [worker for worker in workers if worker.process.poll() not in (None, 0)]


def _cause(failed: Sequence[Worker]) -> WorkerFailed:
    """The one killed from outside, if any: the others' errors are about its absence. Of those, the last line each."""
    first = min(failed, key=lambda worker: worker.process.returncode > 0)
    failure = str(first.failure(_how(first.process.returncode)))
    return WorkerFailed("\n".join([failure, *(worker.last_word() for worker in failed if worker is not first)]))


def _how(status: int) -> str:
    return f"was ended by signal {-status}" if status < 0 else f"ended with exit status {status}"


def _finish(workers: Sequence[Worker]) -> None:
    """Wait until all have ended."""
    since = time.monotonic()
    while any(worker.process.poll() is None for worker in workers):
        _check(workers, time.monotonic() - since, SILENCE)
        time.sleep(0.05)
    _check(workers, 0.0, SILENCE)
