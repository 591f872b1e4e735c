"""Program and paths -> the files of a plan: its manifest, its kernels' source, and the program that it stands for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

import relaxc
from relaxc.emit.cpu import emit_kernels
from relaxc.emit.cuda import Launch, emit_cuda
from relaxc.emit.exchanges import Kernels, native_exchange
from relaxc.emit.programs import program_plan
from relaxc.manifest import FORMAT, BodyPlan, FieldPlan, GradientPlan, LaunchPlan, Manifest, ParameterPlan
from relaxc.program.ir import Program
from relaxc.program.paths import Gradient, PathBody, Paths
from relaxc.program.printer import print_program
from relaxc.wire.parameters import ITEM_BYTES, Parameter

MEBIBYTE = 1 << 20
FIRST_BUCKET = MEBIBYTE
BUCKET = 25 * MEBIBYTE
"""DDP's limits."""
CODED_BUCKET = 4 * MEBIBYTE
"""Messages of coded buckets follow one another in a pipeline, so smaller buckets cost nothing and start earlier."""
PIECE = 144 << 10
"""Bytes of code per peer: larger messages suffer incast, smaller ones cost calls (measured: 130 KB beat 260 KB)."""
FEW_PIECE = 4 * MEBIBYTE
"""Where a worker gathers codes from one or two, incast is no danger, and larger messages are faster: two workers' 16 MB
both ways took 39 ms in messages of 128 KB, 14 in those of 1 MB, 12 in those of 4."""
SEED = 0x5EED
REASON = "why"
"""Of an operation: the manifest says it for `explain`, and it changes nothing."""


class BodyFacts(Protocol):
    """What the checker knows of a body: manifest.BodyPlan says what these are."""

    @property
    def agreement(self) -> str: ...

    @property
    def staleness(self) -> int: ...

    @property
    def above(self) -> float: ...


@dataclass(frozen=True)
class Sources:
    """`kernels` and `cuda` are the kernels' sources for a CPU and for GPUs, empty where a plan needs none. What
    `manifest` says of binaries (`cpu`, `architectures`) is still empty: the build fills it."""

    manifest: Manifest
    program: str
    kernels: str
    cuda: str


def emit(
    program: Program,
    paths: Paths,
    facts: Sequence[BodyFacts],
    spec_name: str,
    parameters: Sequence[Parameter] | None,
) -> Sources:
    """`paths` and `facts` have one for each body. Without `parameters` kernels are made for all dtypes."""
    kernels = Kernels(sorted({p.dtype for p in parameters}) if parameters is not None else tuple(ITEM_BYTES))
    bodies = tuple(_body(body, known, kernels) for body, known in zip(paths.bodies, facts, strict=True))
    found = tuple(kernels.found.values())
    source, (cuda, launches) = emit_kernels(found) if found else "", emit_cuda(found) if found else ("", ())
    text = print_program(program)
    manifest = Manifest(
        relaxc=relaxc.__version__, spec=spec_name, hash="", cpu="", seed=SEED, bodies=bodies,
        first_bucket_bytes=FIRST_BUCKET, bucket_bytes=BUCKET, coded_bucket_bytes=CODED_BUCKET, piece_bytes=PIECE,
        few_piece_bytes=FEW_PIECE, launches=tuple(map(_launch, launches)),
        parameters=None if parameters is None else tuple(ParameterPlan(p.name, p.shape, p.dtype) for p in parameters),
    )  # fmt: skip
    return Sources(msgspec.structs.replace(manifest, hash=_hash(manifest, text, source, cuda)), text, source, cuda)


def _launch(launch: Launch) -> LaunchPlan:
    return LaunchPlan(
        launch.symbol, launch.threads, launch.per_block, launch.empty, launch.scratch_per_element, launch.real_bytes,
        tuple(FieldPlan(f.name, f.wire.kind, f.wire.bits, f.per_element, f.wire.part) for f in launch.fields),
    )  # fmt: skip


def _hash(manifest: Manifest, program: str, *kernels: str) -> str:
    """Of the meaning: not of the names of the spec and the parameters, which workers compare on their own, nor of what
    was compiled for which machine. A plan has both sources always, so that workers on a CPU and on a GPU agree."""
    limits = (FIRST_BUCKET, BUCKET, CODED_BUCKET, PIECE, FEW_PIECE, SEED)
    parts = [str(FORMAT), program, *kernels, *map(str, limits)]
    bodies = msgspec.json.encode(_without_reasons(msgspec.to_builtins(manifest.bodies)))
    return hashlib.sha256(b"\0".join([*(part.encode() for part in parts), bodies])).hexdigest()


def _without_reasons(value: Any) -> Any:
    """Plain data without what only explains it to a reader."""
    if isinstance(value, dict):
        return {key: _without_reasons(inner) for key, inner in value.items() if key != REASON}
    return [_without_reasons(inner) for inner in value] if isinstance(value, list | tuple) else value


def _body(body: PathBody, facts: BodyFacts, kernels: Kernels) -> BodyPlan:
    statement = body.span.text if body.span else ""
    return BodyPlan(
        selector=body.selector,
        statement=" ".join(statement.split()),
        gradient=None if body.gradient is None else _gradient(body.gradient, kernels),
        program=program_plan(body, kernels) if body.paths else None,
        agreement=facts.agreement,
        staleness=facts.staleness,
        above=facts.above,
    )


def _gradient(gradient: Gradient, kernels: Kernels) -> GradientPlan:
    return GradientPlan(native_exchange(gradient.exchange, kernels), gradient.delay)
