"""Real workers for tests: processes that are started once, each task in a process group of its own over Gloo.

`Pool.run(function, workers, *arguments)` calls `function(rank, workers, *arguments)` in every worker and returns the
results in rank order; an exception in a worker is raised here. `function` is a plain function of a test module.
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import multiprocessing as mp
import os
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import quick_kernels

LARGEST = 5
_context = mp.get_context("spawn")


class WorkerError(AssertionError):
    """An exception of a worker, with its traceback as text. `kind` is the name of its class, `rank` who raised it."""

    def __init__(self, rank: int, kind: str, text: str) -> None:
        self.rank, self.kind, self.text = rank, kind, text
        super().__init__(f"rank {rank}: {text}")


class Pool:
    def __init__(self) -> None:
        self._workers: list[tuple[Any, Any]] = []
        self._holder = tempfile.TemporaryDirectory(prefix="relaxc-pool-")
        self._folder = Path(self._holder.name)
        self._count = itertools.count()

    def run(self, function: Callable[..., Any], workers: int, *arguments: Any, timeout: float = 90) -> list[Any]:
        answers = self.answers(function, workers, *arguments, timeout=timeout)
        for rank, (good, value) in enumerate(answers):
            if not good:
                raise WorkerError(rank, *value)
        return [value for _good, value in answers]

    def answers(
        self, function: Callable[..., Any], workers: int, *arguments: Any, timeout: float = 90
    ) -> list[tuple[bool, Any]]:
        """As run, but for each rank (True, result) or (False, (class name, traceback))."""
        self._grow(workers)
        store = self._folder / str(next(self._count))
        where = (inspect.getsourcefile(function), function.__qualname__)
        for rank in range(workers):
            self._workers[rank][1].send((rank, workers, str(store), where, arguments))
        answers = []
        for rank in range(workers):
            connection = self._workers[rank][1]
            if not connection.poll(timeout):
                self.close()
                raise WorkerError(rank, "TimeoutError", f"no answer within {timeout} s")
            answers.append(self._receive(rank, connection))
        return answers

    def _receive(self, rank: int, connection: Any) -> tuple[bool, Any]:
        try:
            answer: tuple[bool, Any] = connection.recv()
        except (EOFError, ConnectionResetError):
            self.close()
            raise WorkerError(rank, "EOFError", "the worker died") from None
        return answer

    def _grow(self, workers: int) -> None:
        while len(self._workers) < workers:
            here, there = _context.Pipe()
            process = _context.Process(target=serve, args=(there,), daemon=True)
            process.start()
            there.close()
            self._workers.append((process, here))

    def close(self) -> None:
        for process, connection in self._workers:
            connection.close()
            process.kill()
            process.join()
        self._workers = []


def serve(connection: Any) -> None:
    """A worker: one task after another, until the pool closes the connection."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    import torch

    quick_kernels.quick()
    torch.set_num_threads(1)
    while True:
        try:
            task = connection.recv()
        except (EOFError, OSError):
            os._exit(0)
        connection.send(_answer(*task))


def _answer(
    rank: int, workers: int, store: str, where: tuple[str, str], arguments: tuple[Any, ...]
) -> tuple[bool, Any]:
    import torch
    import torch.distributed as dist

    try:
        function = _function(*where)
        torch.manual_seed(1234)
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=workers)
        return True, function(rank, workers, *arguments)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the test is told
        return False, (type(error).__name__, "".join(traceback.format_exception(error)))
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def _function(path: str, name: str) -> Callable[..., Any]:
    key = f"pooled_{Path(path).stem}_{abs(hash(path))}"
    if key not in sys.modules:
        spec = importlib.util.spec_from_file_location(key, path)
        assert spec is not None and spec.loader is not None
        sys.modules[key] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[key])
    found: Callable[..., Any] = getattr(sys.modules[key], name)
    return found
