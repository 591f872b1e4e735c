"""What encoding and decoding cost on this machine: the generated kernels of a small plan, run by the runtime."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch

from relaxc.build.kernels import LIBRARY
from relaxc.build.plan_files import MANIFEST
from relaxc.build.runtime import load_runtime
from relaxc.manifest import CodecPlan, KernelPlan, Manifest, decode
from relaxc.schedule.routed import layout_of

SPEC = """
relax gradients for "exact" { compress = exact, feedback = none }
relax gradients for "bf16" { compress = bf16, feedback = none }
relax gradients for "8bit" { compress = 8bit, feedback = none }
relax gradients { compress = 4bit, feedback = none }
"""
"""Whose plan is run."""
ELEMENTS = tuple(4096 * 8**k for k in range(4))
"""4 thousand to 2 million."""
REPETITIONS = 7
ENCODES, DECODES = "contribute", "spread"
"""The kernels of the route `all` that do nothing else."""

Times = dict[int, float]
"""Seconds by elements."""


@dataclass(frozen=True)
class CodingTimes:
    encode: Times
    decode: Times


class _Watch:
    """What the runtime asks of who waits; nothing here waits."""

    def on_wait(self, _seconds: float) -> None: ...

    def on_failure(self, _iteration: int, _bucket: int, _peer: int, what: str) -> None:
        raise RuntimeError(what)


def coding_times(folder: Path) -> dict[str, CodingTimes]:
    """By the text of each codec of the plan in `folder`, made of SPEC, as `pipeline.build` left it in the cache."""
    manifest, runtime = decode((folder / MANIFEST).read_bytes()), load_runtime()
    operations = runtime.Operations(runtime.Channel(), 0, 1, 0, str(folder / LIBRARY), _Watch())
    jobs: dict[tuple[str, str, int], Any] = {}
    for codec, kernels in _coded(manifest):
        for elements in ELEMENTS:
            for name, call in _calls(runtime, operations, codec, kernels, elements):
                jobs[codec.text, name, elements] = call
    times: dict[tuple[str, str, int], list[float]] = {key: [] for key in jobs}
    for _ in range(REPETITIONS):
        for key, call in jobs.items():
            times[key].append(_timed(call))
    operations.stop()
    return {text: CodingTimes(_of(times, text, ENCODES), _of(times, text, DECODES)) for text, _, _ in jobs}


def _coded(manifest: Manifest) -> Iterator[tuple[CodecPlan, dict[str, KernelPlan]]]:
    for body in manifest.bodies:
        assert body.gradient is not None, "SPEC has means of gradients"
        exchange = body.gradient.exchange
        assert exchange.codec is not None
        yield exchange.codec, {kernel.kernel: kernel for kernel in exchange.kernels if kernel.dtype == "f32"}


def _calls(
    runtime: Any, operations: Any, codec: CodecPlan, kernels: dict[str, KernelPlan], elements: int
) -> Iterator[tuple[str, Any]]:
    """The decoder reads what the encoder writes."""
    tensor, decoded = torch.randn(elements), torch.zeros(elements)
    message = torch.zeros(layout_of(codec).bytes_of(elements), dtype=torch.uint8)
    for name, value, inputs, output in ((ENCODES, tensor, [], message), (DECODES, decoded, [message], None)):
        segment = runtime.Segment(0, 0, elements, [runtime.Operand("buffer", value, 0)])
        yield name, operations.call(kernels[name].symbol, name, [segment], inputs, output)


def _timed(call: Any) -> float:
    start = time.perf_counter()
    call.run(0, [])
    return time.perf_counter() - start


def _of(times: dict[tuple[str, str, int], list[float]], text: str, what: str) -> Times:
    """Without the first repetition, in which memory is new."""
    return {elements: median(found[1:]) for (t, w, elements), found in times.items() if (t, w) == (text, what)}
