"""One step of the user's optimisers is one step: schedules, groups and counters go on as without a plan."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

LATE = "relax gradients { delay = 1 }"


def several(rank: int, workers: int) -> None:
    """AdamW with two groups and SGD, each with its scheduler, against the same on means worked out alone."""
    ours, alone = loops.mlp(), loops.mlp()
    kits = [kit(ours), kit(alone)]
    relaxed = loops.plan(loops.EXACT).attach(ours, [o for o, _ in kits[0]])
    for t in range(5):
        for optimizer, _ in (*kits[0], *kits[1]):
            optimizer.zero_grad()
        loops.backward(ours, rank, t)
        means = loops.mean_alone(alone, workers, lambda m, r, t=t: loops.backward(m, r, t))
        for p, mean in zip(alone.parameters(), means, strict=True):
            p.grad = mean.float()
        for optimizer, scheduler in (*kits[0], *kits[1]):
            optimizer.step()
            scheduler.step()
        loops.close(loops.weights(ours), loops.weights(alone), 1e-4)
    for (mine, clock), (theirs, other) in zip(*kits, strict=True):
        assert [g["lr"] for g in mine.param_groups] == [g["lr"] for g in theirs.param_groups]
        assert clock.last_epoch == other.last_epoch == 5
        counts = [float(s["step"]) for s in mine.state.values() if "step" in s]
        assert counts == [5.0] * len(counts)
    relaxed.detach()


def kit(model: nn.Sequential) -> list[tuple[torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler]]:
    adam = torch.optim.AdamW(
        [{"params": model[0].parameters()}, {"params": model[2].parameters(), "lr": 0.02}], lr=0.01
    )
    sgd = torch.optim.SGD(model[4].parameters(), lr=0.1, momentum=0.9, nesterov=True)
    return [(o, torch.optim.lr_scheduler.StepLR(o, 2, 0.5)) for o in (adam, sgd)]


def test_several_optimisers_groups_and_schedulers(pool: Pool) -> None:
    pool.run(several, 2)


def late_counters(rank: int, workers: int) -> None:
    """Iterations without a landing are none for the optimiser's counters; afterwards each advances once a step."""
    model = loops.mlp()
    optimizers = [torch.optim.AdamW(model[:2].parameters()), torch.optim.AdamW(model[2:].parameters())]
    relaxed = loops.plan(LATE).attach(model, optimizers)
    for t in range(4):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loops.backward(model, rank, t)
        for optimizer in optimizers:
            optimizer.step()
    counts = [float(s["step"]) for o in optimizers for s in o.state.values()]
    assert counts == [3.0] * 6
    relaxed.detach()


def test_late_gradients_and_several_optimisers(pool: Pool) -> None:
    pool.run(late_counters, 2)


def no_rate(rank: int, workers: int, spec: str) -> None:
    model = loops.mlp()
    before = loops.weights(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0, momentum=0.9, weight_decay=0.1)
    relaxed = loops.plan(spec).attach(model, optimizer)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    loops.same(loops.weights(model), before)
    assert all(torch.isfinite(g).all() for g in loops.gradients(model))
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED, LATE])
def test_learning_rate_zero(pool: Pool, spec: str) -> None:
    pool.run(no_rate, 2, spec)


def with_closure(rank: int, workers: int, spec: str) -> None:
    """step(closure) runs backward inside the step: the first late one must change nothing, the next must."""
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer)

    def closure(t: int) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loops.loss(model, loops.batch(rank, t))
        loss.backward()
        return loss

    moved = []
    for t in range(3):
        before = loops.weights(model)
        assert optimizer.step(lambda t=t: closure(t)) is not None
        moved.append(not all(torch.equal(a, b) for a, b in zip(before, loops.weights(model), strict=True)))
    assert moved == [spec != LATE, True, True]
    everyone = loops.everywhere(loops.weights(model), workers)
    for other in everyone:
        loops.same(other, everyone[0])
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED, LATE])
def test_a_step_with_a_closure(pool: Pool, spec: str) -> None:
    pool.run(with_closure, 2, spec)


def many_evaluations(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)
    relaxed = loops.plan(loops.EXACT).attach(model, optimizer)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = loops.loss(model, loops.batch(0, 0))  # LBFGS branches on the loss: the same on all workers
        loss.backward()
        return loss

    first = closure().item()
    optimizer.step(closure)
    assert closure().item() < first
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


def test_an_optimiser_that_evaluates_often(pool: Pool) -> None:
    pool.run(many_evaluations, 2)
