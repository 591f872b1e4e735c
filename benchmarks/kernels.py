"""Generated CPU kernels against memcpy of the input, and against the same formula in torch.compile and eager torch.

As the runtime calls them, on one thread and on two. Every figure is a median of ratios within the rounds of one
interleaved run: a shared machine's noise hits all of a round alike.

    python -m benchmarks.kernels [--elements 25000000] [--rounds 15] [--json]
"""

from __future__ import annotations

import argparse
import ctypes
import statistics
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import formulas
import torch
from bench import INPUTS, Bench, Job, interleaved, on_threads
from on_hosts import Figure, show
from torch import Tensor

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

ENCODE = Kernel("encode", "none", tensor=True, averages=False, residual=False, owner=False)
KEEP = Kernel("encode_keep", "none", tensor=True, averages=False, residual=True, owner=False)
COMBINE = Kernel("combine", "many", tensor=False, averages=True, residual=False, owner=True)
DECODE = Kernel("decode", "one", tensor=False, averages=False, residual=False, owner=False, decodes=True)
COMPILED, EAGER, MANY_TENSORS = 1.0, 10.0, 3.0
"""How many times as fast as the same formula in torch; 100 small tensors to one of their size."""
SHARE = 1.7 / 2
"""Of what two threads can bring: twice one thread, or as many bytes as two threads copy where that is less."""
WHOLE = 102_400
"""A multiple of all blocks: the formulas know no short one."""
TENSORS, SMALL = 100, 64
SMALL_CALLS = 200


@dataclass(frozen=True)
class Case:
    """`asked` is a share of memcpy's speed: for the uncompressed tensor or, where `own`, for as many bytes as the
    kernel itself reads and writes. None where nothing is asked of that."""

    name: str
    codec: Codec
    kernel: Kernel
    asked: float | None
    formula: formulas.Formula
    own: bool = False

    @property
    def text(self) -> str:
        return f"{self.name} {self.kernel.name}"


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


def cases() -> list[Case]:
    out = []
    for bits in (8, 4):
        minmax, absmax = (codec(name, bits=bits) for name in ("minmax", "absmax"))
        out += [
            Case(f"minmax {bits}bit", minmax, ENCODE, 0.8, formulas.minmax_encode(bits)),
            Case(f"minmax {bits}bit", minmax, DECODE, 0.8, formulas.minmax_decode(bits)),
            Case(f"absmax {bits}bit", absmax, ENCODE, 0.8, formulas.absmax_encode(bits)),
            Case(f"absmax {bits}bit", absmax, DECODE, 0.8, formulas.absmax_decode(bits)),
        ]
    minmax, bf16 = codec("minmax"), codec("bf16")
    return [
        *out,
        Case("bf16", bf16, ENCODE, 0.8, formulas.cast(torch.bfloat16)),
        Case("bf16", bf16, DECODE, 0.8, formulas.cast(torch.float32)),
        Case("minmax 8bit", minmax, KEEP, 0.6, formulas.minmax_keep),
        Case("onebit", codec("onebit"), KEEP, 0.6, formulas.sign_keep),
        Case("minmax 8bit", minmax, COMBINE, 0.5, formulas.minmax_combine, own=True),
        Case("topk 1%", codec("topk", part=formulas.PART), ENCODE, 0.15, formulas.top),
        *others(),
    ]


def others() -> list[Case]:
    """Both ways of the codecs of which nothing is asked but to be faster than torch."""
    both = {
        "fp16": (codec("fp16"), formulas.cast(torch.float16), formulas.cast(torch.float32)),
        "onebit": (codec("onebit"), formulas.sign_encode, formulas.sign_decode),
        "signs": (codec("signs"), formulas.plain_signs, formulas.plain_signs_decode),
        "qsgd 4bit": (codec("qsgd"), formulas.qsgd_encode, formulas.qsgd_decode),
        "ternary": (codec("ternary"), formulas.ternary_encode, formulas.ternary_decode),
        "natural": (codec("natural"), formulas.natural_encode, formulas.natural_decode),
        "bagua_minmax": (codec("bagua_minmax"), formulas.bagua_encode, formulas.bagua_decode),
        "randomk 1%": (codec("randomk"), formulas.one_of_each, formulas.one_of_each_decode),
        "dct": (codec("dct"), formulas.dct_encode, formulas.dct_decode),
    }
    made = [
        Case(name, of, kernel, None, formula)
        for name, (of, *ways) in both.items()
        for kernel, formula in zip((ENCODE, DECODE), ways, strict=True)
    ]
    return [*made, Case("modulo 8bit", codec("modulo"), ENCODE, None, formulas.modulo_encode)]


def built(case: Case, number: int) -> list[BlockKernel]:
    """What is measured, and what makes messages for it."""
    both = (("bench", case.kernel), ("made", ENCODE))
    return [build_kernel(f"{name}_{number}", case.codec, kernel, "f32") for name, kernel in both]


class Buffers:
    def __init__(self, elements: int) -> None:
        self.tensor, self.residual = torch.randn(elements), torch.randn(elements) * 1e-3
        self.decoded = torch.zeros(elements)

        self.pool = ThreadPoolExecutor(2)

    def memcpy(self) -> None:
        self.copy(0, 4 * self.tensor.numel())

    def memcpy_by_two(self) -> None:
        half = 2 * self.tensor.numel()
        list(self.pool.map(self.copy, (0, half), (half, half)))

    def copy(self, at: int, count: int) -> None:
        ctypes.memmove(self.decoded.data_ptr() + at, self.tensor.data_ptr() + at, count)


class Trial:
    """The jobs of one case."""

    def __init__(self, case: Case, number: int, bench: Bench, buffers: Buffers, segments: int = 1) -> None:
        self.case, self.bench, self.buffers, self.segments = case, bench, buffers, segments
        self.code_bytes = segments * case.codec.layout.bytes_of(bench.elements // segments)
        self.messages = [self.message(number) for _ in range({"none": 0, "one": 1, "many": INPUTS}[case.kernel.inputs])]
        self.output = None if case.kernel.decodes else self.room()
        held = {"value": buffers.decoded if case.kernel.decodes else buffers.tensor, "residual": buffers.residual}
        kernel = next(k for k in bench.kernels if k.symbol == f"bench_{number}")
        self.operands = [held[operand.name] for operand in kernel.operands]
        self.ours = bench.job(f"bench_{number}", self.operands, self.messages, self.output, segments)

    def room(self) -> Tensor:
        return torch.zeros(self.code_bytes, dtype=torch.uint8)

    def message(self, number: int) -> Tensor:
        """A code of the tensor: among any bytes would be numbers that a processor is slow with."""
        made = self.room()
        self.bench.job(f"made_{number}", [self.buffers.tensor], (), made, self.segments)()
        return made

    @property
    def traffic(self) -> int:
        """Bytes read and written."""
        messages = len(self.messages) + (self.output is not None)
        operands = 1 + (self.case.kernel.residual * 2) if self.operands else 0
        return messages * self.code_bytes + operands * 4 * self.bench.elements

    @property
    def blocks(self) -> int:
        return self.bench.elements // self.case.codec.layout.block_of(self.bench.elements)

    def arguments(self) -> list[Tensor]:
        case, buffers = self.case, self.buffers
        if case.kernel.inputs != "none":
            return [part for _ in self.messages for part in self._parts()]
        return [buffers.tensor, buffers.residual] if case.kernel.residual else [buffers.tensor]

    def _parts(self) -> Sequence[Tensor]:
        """Of a code, as the formula that encodes makes them."""
        encodes = {c.name: c.formula for c in cases() if c.kernel is ENCODE}
        return [part.clone() for part in encodes[self.case.name](self.buffers.tensor)]

    def torch_jobs(self) -> tuple[Job | str, Job]:
        """The same by torch.compile, or why not, and by eager torch."""
        formula, arguments = self.case.formula, self.arguments()
        results = [torch.empty_like(r) for r in formula(*arguments)]
        if self.case.kernel.residual:
            results[-1] = arguments[1]
        try:
            fast: Job | str = formulas.compiled(formula, arguments, results)
        except Exception as error:  # noqa: BLE001 - whatever inductor raises is the reason
            fast = f"{type(error).__name__}: {str(error).splitlines()[0]}"
        return fast, lambda: formula(*arguments)


def ratio(numerator: Sequence[float], denominator: Sequence[float]) -> float:
    return statistics.median(n / d for n, d in zip(numerator, denominator, strict=True))


def measured(trial: Trial, rounds: int) -> list[Figure]:
    case, buffers = trial.case, trial.buffers
    fast, eager = trial.torch_jobs()
    jobs = [buffers.memcpy, buffers.memcpy_by_two, trial.ours, on_threads(2, trial.ours), eager]
    jobs += [] if isinstance(fast, str) else [fast]
    copied, copied2, ours, ours2, slow, *compiled = interleaved(jobs, rounds)
    if isinstance(fast, str):
        print(f"{case.text}: not compared with torch.compile, {fast}", file=sys.stderr)
    traffic = trial.traffic / (8 * trial.bench.elements)  # in copies of the tensor
    own = (" of its own traffic", traffic) if case.own else ("", 1.0)
    to_memcpy = own[1] * ratio(copied, ours)
    figures = [
        *([] if case.asked is None else [Figure(f"{case.text} to memcpy{own[0]}", case.asked, to_memcpy)]),
        *(Figure(f"{case.text} to torch.compile", COMPILED, ratio(c, ours)) for c in compiled),
        Figure(f"{case.text} to eager torch", EAGER, ratio(slow, ours)),
    ]
    if trial.blocks > 1:
        most = min(2.0, ratio(ours, copied2) / traffic)
        figures.append(Figure(f"{case.text}, two threads to one", SHARE * most, ratio(ours, ours2)))
    return figures


def many_tensors(case: Case, rounds: int) -> Figure:
    """A bucket of small tensors against one of their size."""
    bench = Bench(TENSORS * SMALL, built(case, 0))
    jobs = [Trial(case, 0, bench, Buffers(bench.elements), segments).ours for segments in (1, TENSORS)]
    one, many = interleaved([repeated(job) for job in jobs], rounds)
    return Figure(f"{case.text}, {TENSORS} tensors of {SMALL} to one", MANY_TENSORS, ratio(many, one), at_most=True)


def repeated(job: Job) -> Job:
    return lambda: [job() for _ in range(SMALL_CALLS)]


def measure(elements: int, rounds: int, only: str) -> list[Figure]:
    torch.set_num_threads(1)
    chosen = [case for case in cases() if only in case.text]
    kernels = [kernel for n, case in enumerate(chosen) for kernel in built(case, n)]
    bench = Bench(elements // WHOLE * WHOLE, kernels)
    buffers = Buffers(bench.elements)
    figures = [f for n, case in enumerate(chosen) for f in measured(Trial(case, n, bench, buffers), rounds)]
    return figures + [many_tensors(case, rounds) for case in chosen if case.codec.layout.unit == "block"]


def main(arguments: list[str] | None = None) -> int:
    """0 where everything asked for was reached."""
    parser = argparse.ArgumentParser(description="generated CPU kernels against memcpy and torch")
    parser.add_argument("--elements", type=int, default=25_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="the cases whose name holds this")
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args(arguments)
    return show(measure(chosen.elements, chosen.rounds, chosen.only), chosen.json)


if __name__ == "__main__":
    sys.exit(main())
