"""state_dict: plain tensors and numbers, and the same bits as not stopping."""

from __future__ import annotations

import io
from typing import Any

import loops
import pytest
import torch
from pool import Pool
from torch import nn

CODED_RING = "relax gradients { compress = 4bit, feedback = both, route = ring }"


def kit(seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = loops.mlp(seed)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def through_a_file(value: Any) -> Any:
    """As a user's checkpoint; weights_only refuses anything but tensors and plain values."""
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def resumed(rank: int, workers: int, spec: str) -> None:
    model, optimizer = kit()
    relaxed = loops.plan(spec).attach(model, optimizer)
    for t in range(4):
        loops.step(model, optimizer, rank, t)
    saved = through_a_file(
        {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "relaxed": relaxed.state_dict()}
    )
    assert all(isinstance(v, (torch.Tensor, int, float)) for v in saved["relaxed"].values())
    for t in range(4, 8):
        loops.step(model, optimizer, rank, t)
    relaxed.detach()

    other, again = kit(seed=5)
    taken_up = loops.plan(spec).attach(other, again)
    loops.step(other, again, rank, 99)  # what it did before must leave no trace
    other.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    taken_up.load_state_dict(saved["relaxed"])
    for t in range(4, 8):
        loops.step(other, again, rank, t)
    loops.same(loops.weights(other), loops.weights(model))
    loops.same(loops.gradients(other), loops.gradients(model))
    assert taken_up.stats()["iterations"] == 8
    taken_up.detach()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("spec", [loops.EVERYTHING, loops.LATE, loops.CODED, CODED_RING, loops.EXACT])
def test_the_same_bits_as_not_stopping(pool: Pool, spec: str, workers: int) -> None:
    pool.run(resumed, workers, spec)


def before_the_first_landing(rank: int, workers: int) -> None:
    """Saved at t = 1 of a delay of 2: the second of the empty iterations is still to come."""
    model, optimizer = kit()
    relaxed = loops.plan(loops.LATE).attach(model, optimizer)
    start = loops.weights(model)
    loops.step(model, optimizer, rank, 0)
    saved = relaxed.state_dict()
    relaxed.detach()
    taken_up = loops.plan(loops.LATE).attach(model, optimizer)
    taken_up.load_state_dict(saved)
    loops.step(model, optimizer, rank, 1)
    loops.same(loops.weights(model), start)
    wanted = loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0))
    loops.step(model, optimizer, rank, 2)
    loops.close(loops.gradients(model), wanted)
    taken_up.detach()


def test_before_the_first_landing(pool: Pool) -> None:
    pool.run(before_the_first_landing, 2)


class Scale:
    """What a plan asks of a GradScaler, which itself refuses float16 parameters."""

    def get_scale(self) -> float:
        return 2.0**12


def with_a_scale(rank: int, workers: int) -> None:
    """Late gradients of the size that a loss scale is for, in float16: they are saved in their own scale, to the bit."""
    spec = "relax gradients { compress = 8bit, feedback = both, delay = 1 }"
    runs = []
    for stop in (False, True):
        model = loops.mlp().half()
        relaxed = loops.attach(spec, model, scaler=Scale())
        seen: loops.Gradients = []
        for t in range(6):
            if stop and t == 3:
                saved = through_a_file(relaxed.state_dict())
                relaxed.detach()
                relaxed = loops.attach(spec, model, scaler=Scale())
                relaxed.load_state_dict(saved)
            model.zero_grad()
            inputs, _ = loops.batch(rank, t)
            (model(inputs.half()).float().sum() * 2e-8 * 2.0**12).backward()
            seen += loops.gradients(model)
        assert (seen[-2] / 2.0**12 * 2.0**12 != seen[-2]).any(), "nothing would be lost without the scale"
        relaxed.detach()
        runs.append(seen)
    loops.same(*runs)


def test_under_a_loss_scale(pool: Pool) -> None:
    pool.run(with_a_scale, 2)


def one_saves(rank: int, workers: int) -> None:
    """Asked for on one worker only: nobody else is needed, and training goes on."""
    model, optimizer = kit()
    relaxed = loops.plan(loops.EVERYTHING).attach(model, optimizer)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
        if rank == 1:
            relaxed.state_dict()
            relaxed.residual_norms()
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


def test_saving_on_one_worker_only(pool: Pool) -> None:
    pool.run(one_saves, 2)


def copies(rank: int, workers: int) -> None:
    """What was saved does not change while training goes on."""
    model, optimizer = kit()
    relaxed = loops.plan(loops.EVERYTHING).attach(model, optimizer)
    loops.step(model, optimizer, rank, 0)
    saved = relaxed.state_dict()
    before = [v.clone() for v in saved.values() if isinstance(v, torch.Tensor)]
    for t in range(1, 4):
        loops.step(model, optimizer, rank, t)
    loops.same([v for v in saved.values() if isinstance(v, torch.Tensor)], before)
    relaxed.detach()


def test_a_saved_state_is_a_copy(pool: Pool) -> None:
    pool.run(copies, 2)


def refusals(rank: int, workers: int) -> None:
    def state(spec: str, model: nn.Module) -> dict[str, Any]:
        relaxed = loops.attach(spec, model)
        loops.backward(model, rank, 0)
        saved = relaxed.state_dict()
        relaxed.detach()
        return saved

    model = loops.mlp()
    good = state(loops.CODED, model)
    late, exact = state(loops.LATE, model), state(loops.EXACT, model)
    wide = state(loops.CODED, loops.mlp(width=17))
    relaxed = loops.attach(loops.CODED, model)
    relaxed.load_state_dict(good)
    before = relaxed.state_dict()
    cases = {
        "not the state of a plan": {"model": 1},
        "has no residual/": exact,
        "late results": late,
        "elements in the state": wide,
        "another rank's keys": {k.replace(f"rank{rank}", "rank7"): v for k, v in good.items()},
        "no place": {**good, "residual/elsewhere/rank0": torch.zeros(3)},
    }
    for sentence, bad in cases.items():
        assert sentence in loops.refused("RX0606", lambda bad=bad: relaxed.load_state_dict(bad)), sentence
    after = relaxed.state_dict()
    assert before.keys() == after.keys()
    loops.same(*([s[k] for k in before if isinstance(s[k], torch.Tensor)] for s in (before, after)))
    relaxed.detach()
    bare = loops.attach(loops.EXACT, model)
    assert "no place" in loops.refused("RX0606", lambda: bare.load_state_dict(good))
    bare.detach()


def test_refused_states_change_nothing(pool: Pool) -> None:
    pool.run(refusals, 2)
