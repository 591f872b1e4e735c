"""Whether what a plan needs has room on the model's device, before any of it is made."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from relaxc.attach.buffers import Memory, make_memory
from relaxc.attach.fitting import FittedPrograms
from relaxc.attach.parameters import ModelParameters
from relaxc.errors import ModelError
from relaxc.manifest import SCRATCH_LIMIT, LaunchPlan, Manifest
from relaxc.schedule.schedule import Schedule, residual_of
from relaxc.wire.parameters import ITEM_BYTES

NOWHERE = torch.device("meta")


def bytes_needed(manifest: Manifest, read: ModelParameters, schedule: Schedule, fitted: FittedPrograms) -> int:
    """Of buffers, residuals, states and the messages of the first round. The census stays on the host."""
    census = len(schedule.buckets)
    gradients = (piece for piece in schedule.pieces if piece.bucket != census)
    messages = sum(sum(piece.buffers) for piece in (*gradients, *fitted.pieces))
    return messages + sum(_of_gradients(manifest, read, schedule)) + sum(_of_programs(manifest, read, schedule, fitted))


def _of_gradients(manifest: Manifest, read: ModelParameters, schedule: Schedule) -> Iterator[int]:
    for parameter, body in zip(read.parameters, schedule.bodies, strict=True):
        gradient = manifest.bodies[body].gradient
        if gradient is None:
            continue
        item = ITEM_BYTES[parameter.dtype]
        if gradient.exchange.codec is None or gradient.delay:
            yield parameter.elements * item * (gradient.delay + 1)
        share = residual_of(gradient.exchange, parameter, schedule.workers, schedule.rank)
        yield (share.worker + share.owner[1] - share.owner[0]) * (8 if parameter.dtype == "f64" else 4)


def _of_programs(
    manifest: Manifest, read: ModelParameters, schedule: Schedule, fitted: FittedPrograms
) -> Iterator[int]:
    for bucket in fitted.buckets:
        program = manifest.bodies[bucket.body].program
        assert program is not None
        yield from _sizes(make_memory(program, bucket, read.parameters, schedule.workers, schedule.rank, NOWHERE))


def _sizes(memory: Memory) -> Iterator[int]:
    yield from (flat.tensor.nbytes for _, flat in memory.named())
    yield from (r.worker.tensor.nbytes + r.owner.tensor.nbytes for r in memory.residuals)


def scratch_needed(manifest: Manifest, read: ModelParameters) -> int:
    """Bytes that a kernel has while it runs, at most, the most of any: kernels run one after the other. Each thread
    block has room for the largest codec block, and there are as many as codec blocks, within SCRATCH_LIMIT."""
    elements: dict[str, list[int]] = {}
    for parameter in read.parameters:
        elements.setdefault(parameter.dtype, []).append(parameter.elements)
    dtypes = {kernel.symbol: kernel.dtype for body in manifest.bodies for kernel in body.kernels}
    return max((_scratch(launch, elements.get(dtypes[launch.symbol], [])) for launch in manifest.launches), default=0)


def _scratch(launch: LaunchPlan, elements: Sequence[int]) -> int:
    each = launch.scratch_bytes(max(elements, default=0))
    blocks = sum(-(-n // (launch.per_block or max(n, 1))) for n in elements)
    return max(each, min(blocks * each, SCRATCH_LIMIT))


def refuse_full(needed: int, device: torch.device) -> None:
    """Raise ModelError (RX0425) where a GPU has no room for so many bytes."""
    if device.type != "cuda":
        return
    free, _ = torch.cuda.mem_get_info(device)
    held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    if needed > free + held:
        raise no_room(needed, free + held, device)


def no_room(needed: int, free: int, device: torch.device) -> ModelError:
    return ModelError(
        "RX0425",
        f"the plan needs {_megabytes(needed)} on {device} beside the model, where {_megabytes(free)} are free",
        "take a smaller model, or a spec that keeps less: `relaxc explain` says how much for each parameter",
    )  # fmt: skip


def _megabytes(bytes: int) -> str:
    return f"{bytes / 1e6:,.0f} MB"
