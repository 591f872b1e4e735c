"""torch.distributed.checkpoint: each worker finds its own residuals again."""

from __future__ import annotations

from pathlib import Path

import loops
import torch
import torch.distributed.checkpoint as dcp
from pool import Pool


def round_trip(rank: int, workers: int, folder: str) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.EVERYTHING, model)
    for t in range(3):
        model.zero_grad()
        loops.backward(model, rank, t)
    saved = relaxed.state_dict()
    dcp.save({"relaxed": saved}, checkpoint_id=folder)
    relaxed.detach()

    taken_up = loops.attach(loops.EVERYTHING, model)
    for t in range(3, 6):  # as many late results: a state of the right shapes, with other numbers
        model.zero_grad()
        loops.backward(model, rank, t)
    state = taken_up.state_dict()
    dcp.load({"relaxed": state}, checkpoint_id=folder)
    taken_up.load_state_dict(state)
    again = taken_up.state_dict()
    assert again.keys() == saved.keys()
    for key, value in saved.items():
        assert torch.equal(again[key], value) if isinstance(value, torch.Tensor) else again[key] == value, key
    (residual,) = (v for k, v in saved.items() if k.startswith("residual/4.weight"))
    everyone = loops.everywhere([residual], workers)
    assert not torch.equal(everyone[0][0], everyone[1][0]), "the workers' residuals differ, or this tests nothing"
    taken_up.detach()


def test_round_trip_with_different_residuals(pool: Pool, tmp_path: Path) -> None:
    pool.run(round_trip, 2, str(tmp_path / "checkpoint"))
