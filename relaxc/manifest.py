"""manifest.json of a plan: what `emit` writes and `attach` reads. Plain data, no torch, no compiler."""

from __future__ import annotations

from typing import Any

import msgspec

FORMAT = 4
"""Version of the plan directory; a plan of another version is refused."""

Number = Any
"""An expression over numbers as nested lists, a name or a number: what wire/numbers.py evaluates."""


class FieldPlan(msgspec.Struct, frozen=True):
    name: str
    kind: str
    bits: int
    per_element: bool
    part: float = 0.0
    """Of a top: which share of the elements it keeps, or how many."""


class KernelPlan(msgspec.Struct, frozen=True):
    """A generated function for tensors of `dtype` (f32, f16, bf16 or f64). `kernel` is its name in wire/routes.py, or
    `fragment`. `operands` are what it is given for each segment, in order: weight, grad, a state's name, kept.N,
    slot.N, residual, `sum`, plain numbers that stand in a message, and `value`, which stands for what an exchange works
    on (a gradient, or its slot)."""

    symbol: str
    kernel: str
    dtype: str
    operands: tuple[str, ...]


class LaunchPlan(msgspec.Struct, frozen=True):
    """How a kernel is launched on a GPU: emit/cuda.py's Launch. `per_block` is in elements; None: a segment is a block,
    an empty one only if `empty`. `real_bytes` are those of the type of arithmetic."""

    symbol: str
    threads: int
    per_block: int | None
    empty: bool
    scratch_per_element: int
    real_bytes: int
    fields: tuple[FieldPlan, ...]

    def scratch_bytes(self, largest: int) -> int:
        """Of global memory for each thread block, where a segment has `largest` elements at most."""
        return scratch_bytes(self.scratch_per_element, min(largest, self.per_block or largest))


SCRATCH_LIMIT = 64 << 20
"""Bytes of scratch of all thread blocks of a kernel, unless one alone needs more (runtime/device_call.cpp)."""
SCRATCH_ROUNDED = 16
"""Elements of an array in global scratch are a multiple of this (relaxrt/cuda_segment.h, runtime/device_call.cpp)."""


def scratch_bytes(per_element: int, elements: int) -> int:
    """Of a codec block of so many elements."""
    return per_element * (-(-elements // SCRATCH_ROUNDED) * SCRATCH_ROUNDED)


class CodecPlan(msgspec.Struct, frozen=True):
    """`text` is the codec with all its arguments; `fields`, `block` and `unit` are its wire/layout.py. `guarded`: it
    has a guard; `states` are numbers for each block, with their first values, codec.NAME in operands of kernels."""

    text: str
    unit: str
    block: int
    fields: tuple[FieldPlan, ...]
    guarded: bool = False
    states: tuple[tuple[str, float], ...] = ()


class ExchangePlan(msgspec.Struct, frozen=True):
    """`kind` is mean, sum, mix or push. `kernels` are those that its route runs by name; `coded` as
    program/paths.Transfer's. `topology` is [name, arguments], nested. `rank` is ir.Exchange's."""

    kind: str
    place: int
    route: str
    topology: Any
    feedback: str
    codec: CodecPlan | None
    coded: bool
    kernels: tuple[KernelPlan, ...]
    rank: int = 0


class GradientPlan(msgspec.Struct, frozen=True):
    """The mean of gradients, `delay` iterations late, done while backward runs."""

    exchange: ExchangePlan
    delay: int


class TransferPlan(msgspec.Struct, frozen=True):
    """program/paths.Transfer."""

    exchange: ExchangePlan
    leaves: str
    lands: str
    block: int
    copies: int
    shape: str = "tensor"
    asynchronous: bool = False


class FragmentPlan(msgspec.Struct, frozen=True):
    """program/paths.Fragment as kernels, one per dtype. `numbers` are what the kernel is given, in order; `writes` its
    targets. `late` are operands of the landing launch. `label` is what a profiler shows. `lends`: what it encodes is
    the weight as it is, which stays so until its messages have landed, so they may be the weight's own memory."""

    kernels: tuple[KernelPlan, ...]
    numbers: tuple[Number, ...]
    writes: tuple[str, ...]
    sends: int | None
    receives: int | None
    late: tuple[str, ...]
    label: str
    lends: bool = False


class OperationPlan(msgspec.Struct, frozen=True):
    kind: str
    number: int
    late: bool
    why: str


class PathPlan(msgspec.Struct, frozen=True):
    guards: tuple[bool, ...]
    numbers: tuple[tuple[str, Number], ...]
    states: tuple[tuple[str, str], ...]
    stages: dict[str, tuple[OperationPlan, ...]]
    steps: bool
    captures: tuple[tuple[int, str, Number], ...] = ()


class ControlPlan(msgspec.Struct, frozen=True):
    """A program/paths.Guard, or with kind `set` a SetNumber (`name`, `value`; `parent` is the guard that must hold)."""

    kind: str
    parent: int
    block: int = 0
    how: str = ""
    value: Number = None
    first: int = 0
    end: int | None = None
    delay: int = 0
    name: str = ""
    most: int = 0


class StatePlan(msgspec.Struct, frozen=True):
    """`initial` is None for what a start fragment computes."""

    name: str
    shape: str
    initial: Number = None


class KeptPlan(msgspec.Struct, frozen=True):
    shape: str
    copies: int


class ProgramPlan(msgspec.Struct, frozen=True):
    """program/paths.PathBody without its gradient. `settings` are those of the optimiser that it reads; `owns` has
    [name, arguments] for a topology."""

    states: tuple[StatePlan, ...]
    control: tuple[ControlPlan, ...]
    transfers: tuple[TransferPlan, ...]
    kept: tuple[KeptPlan, ...]
    fragments: tuple[FragmentPlan, ...]
    start: tuple[int, ...]
    paths: tuple[PathPlan, ...]
    settings: tuple[str, ...]
    owns: tuple[tuple[Any, int], ...] = ()
    landings: tuple[PathPlan, ...] = ()


class BodyPlan(msgspec.Struct, frozen=True):
    """The parameters that `selector` matches (and no earlier body does). `agreement` is what weights have at the end of
    an iteration: replicated, local, or `runs` where replicas are identical after each run of an `every`. `staleness`
    counts iterations, -1 where nothing bounds it. `above` is program/facts.Facts'."""

    selector: Any
    statement: str
    gradient: GradientPlan | None
    program: ProgramPlan | None
    agreement: str
    staleness: int
    above: float = -1.0

    @property
    def exchanges(self) -> tuple[ExchangePlan, ...]:
        """All of them: the gradient's, or those of the program."""
        gradient = () if self.gradient is None else (self.gradient.exchange,)
        return gradient + (() if self.program is None else tuple(t.exchange for t in self.program.transfers))

    @property
    def kernels(self) -> tuple[KernelPlan, ...]:
        fragments = () if self.program is None else self.program.fragments
        return tuple(k for part in (self.exchanges, fragments) for one in part for k in one.kernels)


class ParameterPlan(msgspec.Struct, frozen=True):
    name: str
    shape: tuple[int, ...]
    dtype: str


class BucketPlan(msgspec.Struct, frozen=True):
    """Parameters of one body and dtype, by name, in the order in which they are expected. `readers` are the modules
    that first read them in a forward, by dotted name: of programs, where all are known."""

    body: int
    parameters: tuple[str, ...]
    readers: tuple[str, ...] = ()


class FitPlan(msgspec.Struct, frozen=True):
    """Buckets of gradients and of programs, each in the order in which they leave, as schedule/fit.py chose them for so
    many `workers` over `network`. `finish` is when the last gradient is there, in seconds after backward begins, by the
    costs that it was chosen by."""

    workers: int
    network: str
    gradients: tuple[BucketPlan, ...]
    programs: tuple[BucketPlan, ...]
    finish: float


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """`hash` covers the meaning (program, kernels' sources, bucket limits), never binaries; workers compare it. `cpu`
    names the processor flags that the library was compiled for, if it was; `architectures` are those of GPUs that the
    plan has a cubin for, and `launches` how its kernels are launched there. `parameters` is None for a plan made
    without a model. Sizes of buckets are in bytes of gradient; `piece_bytes` bounds one message of a piece,
    `few_piece_bytes` where codes are gathered and nobody hears from more than a few (schedule/routed.py), if that is
    more."""

    format: int = FORMAT
    relaxc: str
    spec: str
    hash: str
    cpu: str
    seed: int
    bodies: tuple[BodyPlan, ...]
    first_bucket_bytes: int
    bucket_bytes: int
    coded_bucket_bytes: int
    piece_bytes: int
    parameters: tuple[ParameterPlan, ...] | None = None
    few_piece_bytes: int = 0
    fit: FitPlan | None = None
    """Of a plan that was made for a model, a network and a number of workers; else buckets are cut by size."""
    architectures: tuple[str, ...] = ()
    launches: tuple[LaunchPlan, ...] = ()


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=2)


def decode(raw: bytes) -> Manifest:
    """Raise msgspec.DecodeError (ValidationError included) where `raw` is no manifest of this version."""
    return msgspec.json.decode(raw, type=Manifest)
