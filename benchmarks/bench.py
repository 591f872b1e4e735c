"""Generated kernels as the runtime calls them, on buffers that no cache holds, and jobs timed in interleaved rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from relaxc.build.kernels import build_kernels
from relaxc.build.runtime import load_runtime
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.kernel import BlockKernel

Job = Callable[[], object]
INPUTS = 4
NUMBERS = [0.01] * 4


class Watch:
    """What the runtime asks of who waits; nothing here waits."""

    def on_wait(self, _seconds: float) -> None: ...

    def on_failure(self, _iteration: int, _bucket: int, _peer: int, what: str) -> None:
        raise RuntimeError(what)


@dataclass
class Bench:
    """Kernels bound to tensors of `elements` f32 each, in one segment or in `segments` of equal size."""

    elements: int
    kernels: list[BlockKernel]
    operations: Any = field(init=False)

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        library = str(build_kernels(emit_kernels(self.kernels)))
        runtime = load_runtime()
        self.operations = runtime.Operations(runtime.Channel(), 0, INPUTS, 0, library, Watch())

    def job(
        self,
        symbol: str,
        operands: Sequence[Tensor],
        inputs: Sequence[Tensor] = (),
        output: Tensor | None = None,
        segments: int = 1,
    ) -> Job:
        each = self.elements // segments
        runtime = load_runtime()
        bound = [
            runtime.Segment(n, 0, each, [runtime.Operand("buffer", tensor, n * each) for tensor in operands])
            for n in range(segments)
        ]
        call = self.operations.call(symbol, symbol, bound, list(inputs), output)
        weights = [1 / INPUTS] * len(inputs)
        return lambda: call.run(0, NUMBERS, weights)


def on_threads(count: int, job: Job) -> Job:
    def run() -> object:
        torch.set_num_threads(count)
        try:
            return job()
        finally:
            torch.set_num_threads(1)

    return run


def seconds(job: Job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def interleaved(jobs: Sequence[Job], rounds: int) -> list[list[float]]:
    """Seconds of each job in each round, the first (cold) round left out."""
    times = [[seconds(job) for job in jobs] for _ in range(rounds + 1)]
    return [list(column) for column in zip(*times[1:], strict=True)]
