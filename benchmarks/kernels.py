"""Generated CPU kernels against memcpy of the same input and against the same formula in eager torch, on one thread.

Speed is bytes of the uncompressed tensor per second; `ratio` is over memcpy's in the same rounds. Medians of
interleaved rounds: a shared machine's noise hits all of a round alike.

    python -m benchmarks.kernels [--elements 25000000] [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch

from relaxc.build.kernels import build_kernels
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.emit.kernel import BlockKernel
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.spec import CodecUse, Value
from relaxc.language.syntax import Codec as CodecText
from relaxc.language.syntax import Name, Number, Parameter
from relaxc.program.codec import lower_codec
from relaxc.program.ir import Codec
from relaxc.resources import folder
from relaxc.wire.routes import Kernel

Job = Callable[[], object]
EAGER = 10.0
"""How many times faster than eager torch a kernel has to be."""

ENCODE = Kernel("encode", "none", tensor=True, averages=False, residual=False, owner=False)
KEEP = Kernel("encode_keep", "none", tensor=True, averages=False, residual=True, owner=False)
COMBINE = Kernel("combine", "many", tensor=False, averages=True, residual=False, owner=True)
DECODE = Kernel("decode", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True)
INPUTS = 4


@dataclass(frozen=True)
class Row:
    """`asked` and `eager_asked` are None where nothing is asked; `eager` is how many times faster than eager torch."""

    codec: str
    kernel: str
    gigabytes_per_second: float
    ratio: float
    asked: float | None
    eager: float | None = None
    eager_asked: float | None = None

    @property
    def reached(self) -> bool:
        return self.ratio >= (self.asked or 0) and (self.eager or 0) >= (self.eager_asked or 0)


class _Segment(ctypes.Structure):
    _fields_ = [
        ("operands", ctypes.c_void_p),
        ("elements", ctypes.c_int64),
        ("first", ctypes.c_uint64),
        ("parameter", ctypes.c_uint32),
    ]


class _Call(ctypes.Structure):
    _fields_ = [
        ("inputs", ctypes.c_void_p),
        ("weights", ctypes.c_void_p),
        ("number_of_inputs", ctypes.c_int64),
        ("output", ctypes.c_void_p),
        ("numbers", ctypes.c_void_p),
        ("workers", ctypes.c_int64),
        ("key", ctypes.c_uint64),
        ("shared", ctypes.c_uint64),
    ]


def codec(name: str, **chosen: Value) -> Codec:
    """A codec of specs/codecs/, with some of its defaults replaced."""
    path = folder("specs") / "codecs" / f"{name}.relax"
    definition = next(i for i in parse(Source(str(path), path.read_text())).items if isinstance(i, CodecText))
    arguments: dict[str, Value] = {p.name: default(p) for p in definition.parameters}
    return lower_codec(CodecUse(definition, tuple((arguments | chosen).items()), definition.span))


def default(parameter: Parameter) -> Value:
    match parameter.default:
        case Number(value=value):
            return value
        case Name(name=name):
            return name
    raise TypeError(f"{parameter.name} has no default that is a number or a name")


@dataclass
class Bench:
    """The buffers: 25 M f32 elements that no cache holds.

    Four inputs are one message four times, so a combine reads less memory than with four workers' and does as much.
    """

    elements: int

    def __post_init__(self) -> None:
        torch.manual_seed(0)
        self.tensor = torch.randn(self.elements)
        self.residual = torch.randn(self.elements) * 1e-3
        self.decoded = torch.zeros(self.elements)
        self.messages = [torch.zeros(self.elements * 5, dtype=torch.uint8) for _ in range(2)]
        self.others = [torch.rand(self.elements) for _ in range(3)]
        self.weights = (ctypes.c_double * INPUTS)(*[1 / INPUTS] * INPUTS)
        self.numbers = (ctypes.c_double * 4)(0.01, 0.01, 0.01, 0.01)

    def call(self, function: Any, kernel: Kernel, operands: tuple[str, ...]) -> Job:
        """`value` is decoded into another tensor than what is encoded."""
        held = {"value": self.decoded if kernel.decodes else self.tensor, "residual": self.residual}
        return self.job(function, [held[name] for name in operands], kernel.inputs, kernel.decodes)

    def job(self, function: Any, operands: list[torch.Tensor], inputs_of: str, decodes: bool) -> Job:
        source, target = (m.data_ptr() for m in self.messages)
        inputs = (ctypes.c_void_p * INPUTS)(*[source] * INPUTS)
        count = {"none": 0, "one": 1, "many": INPUTS}[inputs_of]
        # What is encoded goes where the decoders read; a combine reads there and writes elsewhere.
        out = None if decodes else source if inputs_of == "none" else target
        weights, numbers = (ctypes.addressof(given) for given in (self.weights, self.numbers))
        call = _Call(ctypes.addressof(inputs), weights, count, out, numbers, INPUTS, 1)
        addresses = (ctypes.c_void_p * max(1, len(operands)))(*(tensor.data_ptr() for tensor in operands))
        segment = _Segment(ctypes.addressof(addresses), self.elements, 0, 0)

        def job() -> object:
            function(ctypes.byref(segment), ctypes.c_int64(1), ctypes.byref(call))
            return inputs, addresses  # which are pointed to: they live as long as the job

        return job

    def memcpy(self) -> object:
        return ctypes.memmove(self.decoded.data_ptr(), self.tensor.data_ptr(), 4 * self.elements)


def eager_encode(bench: Bench, block: int = 512, kept: bool = False) -> Job:
    """minmax 8bit as a user would write it."""

    def job() -> object:
        value = bench.tensor + bench.residual if kept else bench.tensor
        x = value[: value.numel() // block * block].view(-1, block)
        low, high = x.amin(1, keepdim=True), x.amax(1, keepdim=True)
        scale = (high - low) / 255
        level = ((x - low) / scale).round().clamp(0, 255)
        code = level.to(torch.uint8)
        return (code, x - (low + level * scale)) if kept else code

    return job


def eager_decode(bench: Bench, block: int = 512) -> Job:
    rows = bench.elements // block
    code = torch.randint(0, 256, (rows, block), dtype=torch.uint8)
    low, scale = torch.randn(rows, 1), torch.rand(rows, 1)
    return lambda: low + code.to(torch.float32) * scale


Plan = list[tuple[str, Codec, Kernel, float | None]]


def asked() -> Plan:
    """What is measured, with the ratio that is asked for. A codec's encode stands before its other kernels."""
    minmax, narrow = codec("minmax"), codec("minmax", bits=4)
    absmax, onebit, bf16 = codec("absmax"), codec("onebit"), codec("bf16")
    return [
        ("minmax 8bit", minmax, ENCODE, 0.8),
        ("minmax 8bit", minmax, DECODE, 1.2),
        ("minmax 8bit", minmax, COMBINE, None),
        ("minmax 8bit", minmax, KEEP, 0.6),
        ("minmax 4bit", narrow, ENCODE, None),
        ("minmax 4bit", narrow, DECODE, None),
        ("minmax 2bit", codec("minmax", bits=2), KEEP, None),
        ("onebit", onebit, ENCODE, None),
        ("onebit", onebit, DECODE, None),
        ("onebit", onebit, KEEP, None),
        ("bf16", bf16, ENCODE, None),
        ("bf16", bf16, DECODE, None),
        ("fp16", codec("fp16"), ENCODE, None),
        ("absmax 8bit", absmax, ENCODE, None),
        ("absmax 8bit", absmax, DECODE, None),
        ("minmax 8bit stochastic", codec("minmax", rounding="stochastic"), ENCODE, None),
    ]


def built(plan: Plan) -> list[BlockKernel]:
    return [build_kernel(f"bench_{n}", c, kernel, "f32") for n, (_, c, kernel, _) in enumerate(plan)]


def load(kernels: list[BlockKernel]) -> ctypes.CDLL:
    return ctypes.CDLL(str(build_kernels(emit_kernels(kernels))))


def seconds(job: Job) -> float:
    start = time.perf_counter()
    job()
    return time.perf_counter() - start


def interleaved(jobs: list[Job], rounds: int) -> list[list[float]]:
    """Seconds of each job in each round, the first (cold) round left out."""
    times = [[seconds(job) for job in jobs] for _ in range(rounds + 1)]
    return [list(column) for column in zip(*times[1:], strict=True)]


def measure(elements: int, rounds: int) -> list[Row]:
    torch.set_num_threads(1)
    bench, plan = Bench(elements), asked()
    kernels = built(plan)
    library = load(kernels)
    eager = {ENCODE: eager_encode(bench), DECODE: eager_decode(bench), KEEP: eager_encode(bench, kept=True)}
    rows = []
    for number, (name, _, kernel, ratio) in enumerate(plan):
        operands = tuple(o.name for o in kernels[number].operands)
        job = bench.call(library[f"bench_{number}"], kernel, operands)
        copied, ours = interleaved([bench.memcpy, job], rounds)
        paired = statistics.median(c / o for c, o in zip(copied, ours, strict=True))
        slow = statistics.median(interleaved([eager[kernel]], 3)[0]) if ratio is not None else None
        typical = statistics.median(ours)
        faster = None if slow is None else slow / typical
        rows.append(Row(name, kernel.name, 4e-9 * elements / typical, paired, ratio, faster, slow and EAGER))
    return rows


def table(rows: list[Row]) -> str:
    lines = [f"{'codec':24}{'kernel':14}{'GB/s':>7}{'x memcpy':>10}{'asked':>7}{'x eager':>9}{'asked':>7}"]
    for r in rows:
        wanted = f"{r.asked:7.2f}" if r.asked is not None else " " * 7
        eager = f"{r.eager:9.1f}{r.eager_asked:7.0f}" if r.eager is not None else " " * 16
        missed = "" if r.reached else "  missed"
        lines.append(f"{r.codec:24}{r.kernel:14}{r.gigabytes_per_second:7.2f}{r.ratio:10.2f}{wanted}{eager}{missed}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """0 where everything asked for was reached."""
    parser = argparse.ArgumentParser(description="generated CPU kernels against memcpy and eager torch")
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    rows = measure(chosen.elements, chosen.rounds)
    print(json.dumps([asdict(row) for row in rows], indent=2) if chosen.json else table(rows))
    return 0 if all(row.reached for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
