"""The runtime's Engine, filled with the schedule of gradients: buffers, residuals, buckets, pieces."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from relaxc.attach.buffers import HOST
from relaxc.attach.calls import in_message
from relaxc.attach.groups import Groups
from relaxc.attach.parameters import ModelParameters
from relaxc.manifest import GradientPlan, KernelPlan, Manifest
from relaxc.schedule.actions import Action, Piece
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.pieces import Range
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
    there; a parameter whose gradient is not exchanged has bucket -1."""

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
    channel: Any,
    device: Any = None,
) -> Running:
    """`channel` is the runtime's, over which gradients go. `device` is the runtime's library of kernels for the model's
    device, where that is not the CPU."""
    file = None if library is None else str(library)
    engine = runtime.Engine(channel, groups.rank, groups.workers, manifest.seed, file, device)
    bucket_of, offsets = _positions(read, schedule)
    flat = tuple(_flat(bucket, manifest, read) for bucket in schedule.buckets)
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
    _add_buckets(runtime, engine, manifest, schedule, flat, read.device)
    return Running(engine, residuals, flat, offsets, bucket_of)


def _positions(read: ModelParameters, schedule: Schedule) -> tuple[tuple[int, ...], tuple[int, ...]]:
    bucket_of, offsets = [-1] * len(read.parameters), [0] * len(read.parameters)
    for b, bucket in enumerate(schedule.buckets):
        offset = 0
        for p in bucket.parameters:
            bucket_of[p], offsets[p] = b, offset
            offset += read.parameters[p].elements
    return tuple(bucket_of), tuple(offsets)


def _flat(bucket: Bucket, manifest: Manifest, read: ModelParameters) -> tuple[torch.Tensor, ...]:
    """One buffer for each iteration that can be under way: none where codes are made straight from `.grad`."""
    gradient = _gradient(manifest, bucket)
    if gradient.exchange.codec is not None and gradient.delay == 0:
        return ()
    elements = sum(read.parameters[p].elements for p in bucket.parameters)
    like = read.tensors[bucket.parameters[0]]
    return tuple(torch.zeros(elements, dtype=like.dtype, device=like.device) for _ in range(gradient.delay + 1))


def _gradient(manifest: Manifest, bucket: Bucket) -> GradientPlan:
    gradient = manifest.bodies[bucket.body].gradient
    assert gradient is not None
    return gradient


def _residuals(manifest: Manifest, read: ModelParameters, schedule: Schedule, number: int) -> Residuals:
    parameter = read.parameters[number]
    gradient = manifest.bodies[schedule.bodies[number]].gradient
    memory = residual_of(gradient.exchange if gradient else None, parameter, schedule.workers, schedule.rank)
    real = torch.float64 if parameter.dtype == "f64" else torch.float32
    first, end = memory.owner
    return Residuals(
        torch.zeros(memory.worker, dtype=real, device=read.device) if memory.worker else None,
        torch.zeros(end - first, dtype=real, device=read.device) if end > first else None,
        first,
    )


def _add_buckets(
    runtime: ModuleType, engine: Any, manifest: Manifest, schedule: Schedule, flat: Sequence[Sequence[torch.Tensor]],
    device: torch.device,
) -> None:  # fmt: skip
    """Buckets in order, each followed by its pieces; behind them the census, a bucket without parameters, which stays
    on the host: it is what the host knows of a backward."""
    pieces: dict[int, list[Piece]] = {}
    for piece in schedule.pieces:
        pieces.setdefault(piece.bucket, []).append(piece)
    for number, bucket in enumerate(schedule.buckets):
        gradient = _gradient(manifest, bucket)
        coded = gradient.exchange.codec is not None
        engine.add_bucket(list(bucket.parameters), coded, gradient.delay, list(flat[number]))
        if not coded:
            engine.add_piece(runtime.Piece(number, sums=list(flat[number])))
        for piece in pieces.get(number, ()):
            engine.add_piece(_native_piece(runtime, engine, piece, gradient, bucket.dtype, device))
    for piece in pieces.get(len(schedule.buckets), ()):
        engine.add_bucket([], False, 0, [])
        engine.add_piece(runtime_piece(runtime, piece, message_buffers(piece), lambda _action: None))


def message_buffers(piece: Piece, device: torch.device = HOST) -> list[torch.Tensor]:
    return [torch.zeros(size, dtype=torch.uint8, device=device) for size in piece.buffers]


def runtime_piece(
    runtime: ModuleType,
    piece: Piece,
    buffers: Sequence[torch.Tensor],
    call: Callable[[Action], Any],
    *,
    lent: bool = False,
    near: Any = None,
) -> Any:
    """`piece` as the runtime takes it. `buffers` are its messages; `call` makes the runtime's Call of a run; `lent`: a
    message is memory that is written once it has landed; `near`: what kernels elsewhere decode its messages near to."""
    phases = [[_action(runtime, action, call, near) for action in phase] for phase in piece.phases]
    return runtime.Piece(piece.bucket, buffers=list(buffers), phases=phases, lent=lent)


def _action(runtime: ModuleType, action: Action, call: Callable[[Action], Any], near: Any) -> Any:
    if action.kernel is not None:
        return runtime.Action(
            action.kind, call=call(action), buffer=action.buffer, peer=action.peer, tag=action.tag,
            near=list(action.near), block=action.block, settled=near if action.kind == "settle" else None,
        )  # fmt: skip
    return runtime.Action(action.kind, buffer=action.buffer, peer=action.peer, tag=action.tag)


def _native_piece(
    runtime: ModuleType, engine: Any, piece: Piece, gradient: GradientPlan, dtype: str, device: torch.device
) -> Any:
    plans = {k.kernel: k for k in gradient.exchange.kernels if k.dtype == dtype}
    buffers = message_buffers(piece, device)

    def call(action: Action) -> Any:
        kernel = action.kernel
        assert kernel is not None
        inputs = [buffers[b] for b in action.inputs]
        sums = in_message(runtime, inputs.pop(), action.ranges, dtype) if kernel.reads_sum else {}
        return engine.call(
            plans[kernel.name].symbol,
            f"relaxc::{kernel.label}/bucket{piece.bucket}",
            _segments(runtime, action, plans[kernel.name], kernel.owner, sums),
            inputs=inputs,
            output=buffers[action.buffer] if action.buffer >= 0 else None,
            place=gradient.exchange.place,
            owner=kernel.owner,
        )

    return runtime_piece(runtime, piece, buffers, call)


def _segments(
    runtime: ModuleType, action: Action, plan: KernelPlan, owner: bool, sums: Mapping[Range, Any]
) -> list[Any]:
    """The runtime finds these operands in the iteration that it carries out, but for sums that stand in a message."""
    found = {"value": "value", "residual": "owner" if owner else "residual"}
    operands = {name: runtime.Operand(found[name]) for name in plan.operands if name in found}
    return [
        runtime.Segment(r.parameter, r.first, r.elements, [operands.get(n) or sums[r] for n in plan.operands])
        for r in action.ranges
    ]
