"""Generated CUDA kernels against a copy of the same tensor on the same card.

Medians of interleaved rounds between two events of the stream: the copy's time over the kernel's (`x copy`), and the
share of the copy's bandwidth that the kernel reaches with the bytes that it reads and writes itself. Asked is ASKED for
8 bits; status 1 where one has less.

    python -m benchmarks.gpu_kernels [--elements 25000000] [--rounds 15]
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable
from typing import Any

import torch
from kernels import DECODE, ENCODE, KEEP, codec

from relaxc.attach.devices import _launch
from relaxc.build.cubins import build_cubin
from relaxc.build.runtime import load_runtime
from relaxc.emit.cuda import emit_cuda
from relaxc.emit.fuse import build_kernel
from relaxc.emit.plan import _launch as plan_of
from relaxc.program.ir import Codec
from relaxc.wire.routes import Kernel

Job = Callable[[], object]
ASKED = 0.6
COPIED = 8
"""Bytes that a copy of f32 moves for each element."""
Row = tuple[str, Codec, Kernel]


def measured() -> list[Row]:
    codecs = {
        "minmax 8bit": codec("minmax"), "minmax 4bit": codec("minmax", bits=4), "absmax 8bit": codec("absmax"),
        "onebit": codec("onebit"), "bf16": codec("bf16"),
    }  # fmt: skip
    return [(name, made, kernel) for name, made in codecs.items() for kernel in (ENCODE, KEEP, DECODE)]


class Card:
    """The kernels of `rows`, loaded, and memory that they work on."""

    def __init__(self, rows: list[Row], elements: int) -> None:
        self.device, self.elements, self.runtime = torch.device("cuda", 0), elements, load_runtime()
        kernels = [build_kernel(f"bench_{n}", made, kernel, "f32") for n, (_, made, kernel) in enumerate(rows)]
        source, launches = emit_cuda(kernels)
        architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(0))
        image = build_cubin(source, architecture).read_bytes()
        plans = [self.runtime.LaunchPlan(**_launch(plan_of(launch))) for launch in launches]
        library = self.runtime.DeviceLibrary(self.runtime.Driver(), self.device, 0, image, plans)
        self.operations = self.runtime.Operations(self.runtime.Channel(), 0, 1, 1, None, _Watch(), device=library)
        self.sent = [launch.bytes_of(elements) for launch in launches]
        self.tensor, self.residual = torch.randn(2, elements, device=self.device)
        self.decoded = torch.zeros(elements, device=self.device)
        self.message = torch.zeros(elements * 5, dtype=torch.uint8, device=self.device)
        self.names = [tuple(o.name for o in kernel.operands) for kernel in kernels]

    def job(self, number: int, kernel: Kernel) -> Job:
        held = {"value": self.decoded if kernel.decodes else self.tensor, "residual": self.residual}
        operands = [self.runtime.Operand("buffer", held[name], 0) for name in self.names[number]]
        segment = self.runtime.Segment(0, 0, self.elements, operands)
        inputs, output = ([self.message], None) if kernel.decodes else ([], self.message)
        call: Any = self.operations.call(f"bench_{number}", "bench", [segment], inputs, output)
        return lambda: call.run(0, [0.01] * 4)

    def moved(self, number: int, kernel: Kernel) -> int:
        """Bytes that a kernel reads and writes: its message, the tensor once, a residual twice."""
        return self.sent[number] + self.elements * (4 + (8 if kernel.residual else 0))

    def copy(self) -> object:
        return self.decoded.copy_(self.tensor)

    def stop(self) -> None:
        self.operations.stop()


class _Watch:
    def on_wait(self, seconds: float) -> None: ...

    def on_failure(self, iteration: int, bucket: int, peer: int, what: str) -> None: ...


def milliseconds(job: Job) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    start.record()
    job()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def compare(card: Card, rows: list[Row], rounds: int) -> list[tuple[str, str, float, float, float]]:
    """(codec, kernel, milliseconds, times as fast as a copy, share of its bandwidth)."""
    found = []
    for number, (name, _, kernel) in enumerate(rows):
        job = card.job(number, kernel)
        pairs = [(milliseconds(card.copy), milliseconds(job)) for _ in range(rounds + 1)][1:]
        ratio = statistics.median(copied / ours for copied, ours in pairs)
        share = ratio * card.moved(number, kernel) / (COPIED * card.elements)
        found.append((name, kernel.name, statistics.median(ours for _, ours in pairs), ratio, share))
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="generated CUDA kernels against a copy on the card")
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("no CUDA device that this torch can use")
        return 0
    rows = measured()
    card = Card(rows, chosen.elements)
    print(f"{torch.cuda.get_device_name(0)}, {chosen.elements} elements of f32")
    print(f"{'codec':16}{'kernel':14}{'ms':>8}{'x copy':>8}{'bandwidth':>11}")
    missed = False
    for name, kernel, taken, ratio, share in compare(card, rows, chosen.rounds):
        slow = name.endswith("8bit") and share < ASKED
        missed |= slow
        print(f"{name:16}{kernel:14}{taken:8.3f}{ratio:8.2f}{share:11.2f}{f'  asked {ASKED}' if slow else ''}")
    card.stop()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
