"""What a worker that comes back takes over from one that has lived on: weights, buffers, states of the program, its
numbers, and what the optimisers remember. Its own losses of the past are gone with it: they begin at zero.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from relaxc.attach.groups import Groups
from relaxc.attach.program_state import ProgramState
from relaxc.attach.programs import Programs
from relaxc.attach.saved import Saved
from relaxc.manifest import Manifest

LOSSES = frozenset({"loss", "owned"})


def share_state(
    programs: Programs, manifest: Manifest, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer],
    groups: Groups,
) -> None:  # fmt: skip
    """Have a copy ready for whoever comes back. Where this worker does, take one before anything begins."""
    state = ProgramState(manifest, programs, groups.rank, groups.workers)
    programs.copy_state = lambda: pack(model, optimizers, state)
    if groups.rejoins and programs.asynchrony is not None:
        programs.asynchrony.come_back(
            lambda packed: unpack(packed, model, optimizers, state, groups.rank, groups.workers)
        )


def pack(model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], programs: ProgramState) -> bytes:
    """Between two steps."""
    made = io.BytesIO()
    torch.save(
        {
            "model": [tensor.detach() for tensor in _tensors(model)],
            "optimizers": [optimizer.state_dict() for optimizer in optimizers],
            "programs": programs.now(),
        },
        made,
    )
    return made.getvalue()


def unpack(
    packed: bytes, model: nn.Module, optimizers: Sequence[torch.optim.Optimizer], programs: ProgramState,
    rank: int, workers: int,
) -> None:  # fmt: skip
    state = torch.load(io.BytesIO(packed), weights_only=True)
    with torch.no_grad():
        for tensor, value in zip(_tensors(model), state["model"], strict=True):
            tensor.data.copy_(value)
        programs.take(programs.read(Saved({**_mine(state["programs"], rank), "workers": workers}, rank, workers, [])))
    for optimizer, saved in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(saved)


def _tensors(model: nn.Module) -> list[torch.Tensor]:
    return [*model.parameters(), *model.buffers()]


def _mine(state: Mapping[str, Any], rank: int) -> dict[str, Any]:
    """Under this worker's rank."""
    made = {}
    for key, value in state.items():
        fresh = torch.zeros_like(value) if key.partition("/")[0] in LOSSES else value
        made[f"{key.rpartition('/rank')[0]}/rank{rank}"] = fresh
    return made
