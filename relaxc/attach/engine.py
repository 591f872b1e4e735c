"""The runtime's Engine, filled with a schedule: buffers, residuals, buckets, pieces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from relaxc.attach.groups import Groups
from relaxc.attach.parameters import ModelParameters
from relaxc.manifest import Manifest
from relaxc.schedule.actions import Action, Piece
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.schedule import Schedule, residual_of


@dataclass(frozen=True)
class Residuals:
    """Of one parameter, in its arithmetic type; None where the plan keeps none. `owner` starts at element `first`."""

    worker: torch.Tensor | None
    owner: torch.Tensor | None
    first: int


@dataclass(frozen=True)
class Running:
    """The engine and what Python keeps of it. `flat[b]` are bucket b's buffers, `offsets[p]` where parameter p starts
    there."""

    engine: Any
    residuals: tuple[Residuals, ...]
    flat: tuple[tuple[torch.Tensor, ...], ...]
    offsets: tuple[int, ...]
    bucket_of: tuple[int, ...]


def make_engine(
    runtime: ModuleType,
    library: Path | None,
    manifest: Manifest,
    read: ModelParameters,
    schedule: Schedule,
    groups: Groups,
) -> Running:
    engine = runtime.Engine(groups.exchange, manifest.seed, None if library is None else str(library))
    bucket_of, offsets = _positions(read, schedule)
    flat = tuple(_flat(bucket, manifest, read, b) for b, bucket in enumerate(schedule.buckets))
    residuals = tuple(_residuals(manifest, read, schedule, p) for p in range(len(read.parameters)))
    for number, parameter in enumerate(read.parameters):
        kept = residuals[number]
        engine.add_parameter(
            read.tensors[number],
            parameter.name,
            bucket_of[number],
            offsets[number],
            kept.worker,
            kept.owner,
            kept.first,
        )
    _add_buckets(engine, manifest, schedule, flat)
    return Running(engine, residuals, flat, offsets, bucket_of)


def _positions(read: ModelParameters, schedule: Schedule) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bucket_of, offsets = [0] * len(read.parameters), [0] * len(read.parameters)
    for b, bucket in enumerate(schedule.buckets):
        offset = 0
        for p in bucket.parameters:
            bucket_of[p], offsets[p] = b, offset
            offset += read.parameters[p].elements
    return tuple(bucket_of), tuple(offsets)


def _flat(bucket: Bucket, manifest: Manifest, read: ModelParameters, number: int) -> tuple[torch.Tensor, ...]:
    """One buffer for each iteration that can be under way: none where codes are made straight from `.grad`."""
    body = manifest.bodies[bucket.body]
    if body.exchange.codec is not None and body.delay == 0:
        return ()
    elements = sum(read.parameters[p].elements for p in bucket.parameters)
    dtype = read.tensors[bucket.parameters[0]].dtype
    return tuple(torch.zeros(elements, dtype=dtype) for _ in range(body.delay + 1))


def _residuals(manifest: Manifest, read: ModelParameters, schedule: Schedule, number: int) -> Residuals:
    parameter = read.parameters[number]
    memory = residual_of(manifest.bodies[schedule.bodies[number]], parameter, schedule.workers, schedule.rank)
    real = torch.float64 if parameter.dtype == "f64" else torch.float32
    first, end = memory.owner
    return Residuals(
        torch.zeros(memory.worker, dtype=real) if memory.worker else None,
        torch.zeros(end - first, dtype=real) if end > first else None,
        first,
    )


def _add_buckets(engine: Any, manifest: Manifest, schedule: Schedule, flat: Sequence[Sequence[torch.Tensor]]) -> None:
    """Buckets in order, each followed by its pieces; behind them the census, a bucket without parameters."""
    pieces: dict[int, list[Piece]] = {}
    for piece in schedule.pieces:
        pieces.setdefault(piece.bucket, []).append(piece)
    for number, bucket in enumerate(schedule.buckets):
        body = manifest.bodies[bucket.body]
        coded = body.exchange.codec is not None
        engine.add_bucket(list(bucket.parameters), coded, body.delay, list(flat[number]))
        if not coded:
            engine.add_piece(number, 0, [], [])
        for piece in pieces.get(number, ()):
            _add_piece(engine, piece, body.exchange.place, _symbols(manifest, bucket))
    for piece in pieces.get(len(schedule.buckets), ()):
        engine.add_bucket([], False, 0, [])
        _add_piece(engine, piece, 0, {})


def _add_piece(engine: Any, piece: Piece, place: int, symbols: Mapping[str, str]) -> None:
    buffers = [torch.zeros(size, dtype=torch.uint8) for size in piece.buffers]
    phases = [[_row(action, symbols) for action in phase] for phase in piece.phases]
    engine.add_piece(piece.bucket, place, buffers, phases)


def _symbols(manifest: Manifest, bucket: Bucket) -> dict[str, str]:
    codec = manifest.bodies[bucket.body].exchange.codec
    assert codec is not None
    return {k.kernel: k.symbol for k in codec.kernels if k.dtype == bucket.dtype}


def _row(action: Action, symbols: Mapping[str, str]) -> tuple[Any, ...]:
    """The tuple that runtime/binding.cpp takes."""
    kernel = action.kernel
    if kernel is None:
        return (action.kind, "", "", [], [], False, False, False, action.buffer, action.peer, action.tag)
    ranges = [(r.parameter, r.first, r.elements) for r in action.ranges]
    label = f"relaxc::{kernel.label}"
    touches = kernel.tensor or kernel.decodes
    return (
        "run", symbols[kernel.name], label, ranges, list(action.inputs), touches, kernel.residual, kernel.owner,
        action.buffer, -1, 0,
    )  # fmt: skip
