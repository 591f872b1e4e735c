"""GradScaler: all workers skip the same steps, the scale recovers, and what the plan remembers follows the scale."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

SPECS = [
    loops.EXACT, loops.CODED, "relax gradients { compress = 4bit, feedback = both, route = ring }",
    "relax gradients { compress = 1bit, feedback = both }", "relax gradients { compress = fp16, feedback = both }",
]  # fmt: skip


def scaled_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler, rank: int, t: int, factor: float
) -> None:
    optimizer.zero_grad()
    scaler.scale(loops.loss(model, loops.batch(rank, t)) * factor).backward()
    scaler.step(optimizer)
    scaler.update()


def overflow(rank: int, workers: int, spec: str) -> None:
    """Rank 1's loss overflows at step 2 only."""
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=2)
    relaxed = loops.plan(spec).attach(model, optimizer, scaler=scaler)
    scales, moved = [], []
    for t in range(6):
        before = loops.weights(model)
        scaled_step(model, optimizer, scaler, rank, t, float("inf") if (t, rank) == (2, 1) else 1.0)
        moved.append(not torch.equal(before[0], loops.weights(model)[0]))
        scales.append(scaler.get_scale())
        state = relaxed.state_dict()
        assert all(torch.isfinite(v).all() for v in state.values() if isinstance(v, torch.Tensor))
    assert moved == [True, True, False, True, True, True]
    assert scales == [2.0**10, 2.0**11, 2.0**10, 2.0**10, 2.0**11, 2.0**11]
    everyone = loops.everywhere(loops.weights(model), workers)
    for other in everyone:
        loops.same(other, everyone[0])
    relaxed.detach()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_inf_on_one_worker_skips_the_step_on_all(pool: Pool, spec: str, workers: int) -> None:
    pool.run(overflow, workers, spec)


def late_overflow(rank: int, workers: int) -> None:
    """With a delay the step that is skipped is the one in which the overflow lands."""
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=100)
    relaxed = loops.plan(loops.LATE).attach(model, optimizer, scaler=scaler)
    moved, scales = [], []
    for t in range(7):
        before = loops.weights(model)
        scaled_step(model, optimizer, scaler, rank, t, float("inf") if (t, rank) == (2, 1) else 1.0)
        moved.append(not torch.equal(before[0], loops.weights(model)[0]))
        scales.append(scaler.get_scale())
    assert moved == [False, False, True, True, False, True, True]
    assert scales == [2.0**10] * 4 + [2.0**9] * 3
    relaxed.detach()


def test_inf_with_a_delay(pool: Pool) -> None:
    pool.run(late_overflow, 2)


def rescaled(rank: int, workers: int, spec: str) -> None:
    """The same training without a scaler, and with one whose scale changes: unscaled gradients and residuals agree to the
    bit, since scales are powers of two and codecs are scale-free."""
    results = []
    for scale in (None, 8.0):
        model = loops.mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=scale or 1.0, enabled=scale is not None, growth_interval=2)
        relaxed = loops.plan(spec).attach(model, optimizer, scaler=scaler)
        seen: list[torch.Tensor] = []
        for t in range(6):
            optimizer.zero_grad()
            scaler.scale(loops.loss(model, loops.batch(rank, t))).backward()
            scaler.unscale_(optimizer)
            seen += [torch.zeros(()) if g is None else g for g in loops.gradients(model)]
            scaler.step(optimizer)
            scaler.update()
        state = relaxed.state_dict()
        seen += [v for k, v in sorted(state.items()) if k.startswith(("residual", "owner"))]
        results.append(seen)
        assert scale is None or scaler.get_scale() == 64.0
        relaxed.detach()
    loops.same(*results)


@pytest.mark.parametrize("spec", [*SPECS[:4], loops.EVERYTHING])
def test_residuals_and_late_gradients_follow_the_scale(pool: Pool, spec: str) -> None:
    pool.run(rescaled, 2, spec)


def autocast_without(rank: int, workers: int) -> None:
    import warnings

    model = loops.mlp()
    relaxed = loops.attach(loops.CODED, model)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                model(loops.batch(rank, 0)[0])
        assert not said
        for _ in range(3):
            with torch.autocast("cpu", dtype=torch.float16):
                model(loops.batch(rank, 0)[0])
    assert len(said) == 1 and "scaler=scaler" in str(said[0].message)
    relaxed.detach()


def test_fp16_autocast_without_a_scaler_is_mentioned_once(pool: Pool) -> None:
    pool.run(autocast_without, 1)


def under_autocast(rank: int, workers: int) -> None:
    def go(m: nn.Module, r: int) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = m(loops.batch(r, 0)[0]).float().square().mean()
        loss.backward()

    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    go(model, rank)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, go))
    relaxed.detach()


def test_autocast(pool: Pool) -> None:
    pool.run(under_autocast, 2)
