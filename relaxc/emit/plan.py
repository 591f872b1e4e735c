"""Program -> the files of a plan: its manifest, its kernels' source, and the program that it stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import relaxc
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.fuse import build_kernel
from relaxc.emit.kernel import BlockKernel
from relaxc.manifest import (
    FORMAT,
    BodyPlan,
    CodecPlan,
    ExchangePlan,
    FieldPlan,
    KernelPlan,
    Manifest,
    ParameterPlan,
)  # fmt: skip
from relaxc.program.ir import After, Body, Carried, Expression, Mean, Program
from relaxc.program.printer import print_program, print_statements
from relaxc.wire.parameters import ITEM_BYTES, Parameter
from relaxc.wire.routes import Kernel

MEBIBYTE = 1 << 20
FIRST_BUCKET = MEBIBYTE
BUCKET = 25 * MEBIBYTE
"""DDP's limits."""
CODED_BUCKET = 4 * MEBIBYTE
"""Messages of coded buckets follow one another in a pipeline, so smaller buckets cost nothing and start earlier."""
PIECE = 144 << 10
"""Bytes of code per peer: larger messages suffer incast, smaller ones cost calls (measured: 130 KB beat 260 KB)."""
SEED = 0x5EED


@dataclass(frozen=True)
class Sources:
    """`kernels` is empty where nothing is coded. `manifest.cpu` is still empty: the build fills it."""

    manifest: Manifest
    program: str
    kernels: str


def emit(program: Program, spec_name: str, parameters: Sequence[Parameter] | None) -> Sources:
    """`program` is carried (passes/carry). Without `parameters` kernels are made for every dtype."""
    dtypes = tuple(sorted({p.dtype for p in parameters})) if parameters is not None else tuple(ITEM_BYTES)
    kernels: dict[str, BlockKernel] = {}
    bodies = tuple(_body(body, dtypes, kernels) for body in program.bodies)
    source = emit_kernels(tuple(kernels.values())) if kernels else ""
    text = print_program(program)
    limits = (FIRST_BUCKET, BUCKET, CODED_BUCKET, PIECE, SEED)
    manifest = Manifest(
        relaxc=relaxc.__version__, spec=spec_name, hash=_hash(text, source, limits), cpu="", seed=SEED, bodies=bodies,
        first_bucket_bytes=FIRST_BUCKET, bucket_bytes=BUCKET, coded_bucket_bytes=CODED_BUCKET, piece_bytes=PIECE,
        parameters=None if parameters is None else tuple(ParameterPlan(p.name, p.shape, p.dtype) for p in parameters),
    )  # fmt: skip
    return Sources(manifest, text, source)


def _hash(program: str, kernels: str, limits: Sequence[int]) -> str:
    return hashlib.sha256("\0".join([str(FORMAT), program, kernels, *map(str, limits)]).encode()).hexdigest()


def _body(body: Body, dtypes: Sequence[str], kernels: dict[str, BlockKernel]) -> BodyPlan:
    exchange, delay = exchange_of(body)
    codec = _codec(exchange, dtypes, kernels) if isinstance(exchange, Carried) else None
    statement = body.span.text if body.span else print_statements(body)
    plan = ExchangePlan(exchange.place, exchange.route, exchange.feedback, codec)
    return BodyPlan(body.selector, " ".join(statement.split()), plan, delay)


def exchange_of(body: Body) -> tuple[Mean | Carried, int]:
    """The exchange of a gradient's body and how many iterations late it lands."""
    delay = 0
    found: list[Mean | Carried] = []
    for statement in body.statements:
        value: Expression | None = getattr(statement, "value", None)
        if isinstance(value, (Mean, Carried)):
            found.append(value)
        if isinstance(statement, After):
            delay = statement.delay
    (exchange,) = found
    return exchange, delay


def _codec(exchange: Carried, dtypes: Sequence[str], kernels: dict[str, BlockKernel]) -> CodecPlan:
    """Statements with the same codec, route and feedback share their kernels."""
    codec = exchange.codec
    digest = hashlib.sha256(repr((codec, exchange.kernels)).encode()).hexdigest()[:8]
    plans = []
    for kernel in exchange.kernels:
        for dtype in dtypes:
            symbol = f"relaxc_{digest}_{kernel.name}_{_kernel_dtype(kernel, dtype)}"
            if symbol not in kernels:
                kernels[symbol] = build_kernel(symbol, codec, kernel, _kernel_dtype(kernel, dtype))
            plans.append(KernelPlan(symbol, kernel.name, dtype))
    fields = tuple(FieldPlan(f.name, f.wire.kind, f.wire.bits, f.per_element) for f in codec.layout.fields)
    return CodecPlan(codec.text, codec.layout.block, fields, tuple(plans))


def _kernel_dtype(kernel: Kernel, dtype: str) -> str:
    """A kernel that touches no tensor depends on the arithmetic type alone."""
    if kernel.tensor or kernel.decodes:
        return dtype
    return "f64" if dtype == "f64" else "f32"
