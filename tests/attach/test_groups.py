"""Any process group, several models, and the user's own collectives beside the plan's."""

from __future__ import annotations

import gc
import weakref

import loops
import pytest
import torch
import torch.distributed as dist
from pool import Pool
from torch import nn


def two_models(rank: int, workers: int) -> None:
    """In one loss and in turns, with different plans."""
    first, second = loops.mlp(seed=1), loops.mlp(seed=2)
    plans = [loops.attach(loops.CODED, first), loops.attach(loops.LATE, second)]

    def together(pair: nn.Module, r: int) -> None:
        x, y = loops.batch(r, 0)
        (loops.loss(pair[0], (x, y)) + loops.loss(pair[1], (x, y))).backward()

    pair = nn.ModuleList([first, second])
    wanted = loops.mean_alone(pair, workers, together)
    for _ in range(3):
        pair.zero_grad()
        together(pair, rank)
    loops.close(loops.gradients(pair), wanted, 0.05)
    loops.close(loops.gradients(second), wanted[6:], 1e-6)
    first.zero_grad()
    loops.backward(first, rank, 5)
    assert [p.stats()["iterations"] for p in plans] == [4, 3]
    for relaxed in plans:
        relaxed.detach()


def test_two_models_with_different_plans(pool: Pool) -> None:
    pool.run(two_models, 2)


def subset(rank: int, workers: int, spec: str) -> None:
    """Ranks 2 and 0 train together, rank 1 is elsewhere."""
    group = dist.new_group([0, 2])
    model = loops.mlp(seed=rank)
    if rank == 1:
        loops.refused("RX0600", lambda: loops.attach(spec, model, group=group))
        return
    relaxed = loops.attach(spec, model, group=group)
    loops.same(loops.weights(model), loops.weights(loops.mlp(seed=0)))
    loops.backward(model, rank, 0)
    wanted = loops.mean_alone(model, 2, lambda m, r: loops.backward(m, 2 * r, 0))
    loops.close(loops.gradients(model), wanted, 1e-6 if spec == loops.EXACT else 0.05)
    assert relaxed.stats()["workers"] == 2
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED])
def test_a_group_of_some_ranks(pool: Pool, spec: str) -> None:
    pool.run(subset, 3, spec)


def second_group(rank: int, workers: int) -> None:
    group = dist.new_group(list(range(workers)))
    one, other = loops.mlp(seed=1), loops.mlp(seed=2)
    plans = [loops.attach(loops.CODED, one, group=group), loops.attach(loops.CODED, other)]
    for model in (one, other):
        loops.backward(model, rank, 0)
        loops.close(
            loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0)), 0.05
        )
    for relaxed in plans:
        relaxed.detach()


def test_all_ranks_in_a_second_group(pool: Pool) -> None:
    pool.run(second_group, 3)


def another_world(rank: int, workers: int) -> None:
    """A process that has attached in a world of its own joins one with others who have not."""
    model = loops.mlp()
    loops.attach(loops.EXACT, model).detach()


def test_worlds_one_after_another(pool: Pool) -> None:
    for workers in (1, 2, 1, 3):
        pool.run(another_world, workers)


def own_collectives(rank: int, workers: int, spec: str) -> None:
    """Between steps, and started by a hook of the user's during backward."""
    model = loops.mlp()
    relaxed = loops.attach(spec, model)
    pending = []

    def during(grad: torch.Tensor) -> None:
        value = torch.full((1000,), float(rank + 1))
        pending.append((dist.all_reduce(value, async_op=True), value))

    for p in model.parameters():
        p.register_hook(during)
    for t in range(4):
        model.zero_grad()
        between = torch.tensor([float(rank)])
        dist.all_reduce(between)
        assert between.item() == sum(range(workers))
        loops.backward(model, rank, t)
        wanted = loops.mean_alone(model, workers, lambda m, r, t=t: loops.backward(m, r, t))
        loops.close(loops.gradients(model), wanted, 1e-6 if spec == loops.EXACT else 0.05)
    for work, value in pending:
        work.wait()
        assert value.eq(sum(range(1, workers + 1))).all()
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, "relax gradients { compress = 8bit, route = ring }"])
def test_the_users_own_collectives(pool: Pool, spec: str) -> None:
    pool.run(own_collectives, 3, spec)


def detached(rank: int, workers: int, spec: str) -> None:
    """After detach each worker trains alone, with no hook left; attached again it is one model."""
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)  # no momentum: attach makes weights alike, not optimisers
    for seed in range(2):
        relaxed = loops.plan(spec).attach(model, optimizer)
        loops.step(model, optimizer, rank, seed)
        everyone = loops.everywhere(loops.weights(model), workers)
        loops.same(everyone[0], everyone[1])
        relaxed.detach()
        assert not optimizer._optimizer_step_pre_hooks and not optimizer._optimizer_step_post_hooks
        assert not model._forward_pre_hooks
        loops.backward(model, rank, 50)
        optimizer.zero_grad()
        alone = loops.mean_alone(model, 1, lambda m, _: loops.backward(m, rank, 9))
        loops.backward(model, rank, 9)
        loops.close(loops.gradients(model), alone)
        optimizer.step()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED, loops.LATE])
def test_detach_and_attach_again(pool: Pool, spec: str) -> None:
    pool.run(detached, 2, spec)


def dropped(rank: int, workers: int) -> None:
    """A plan is at work as long as its model lives, whether anybody holds what attach returned or not."""
    model = loops.mlp()
    plan = weakref.ref(loops.attach(loops.EXACT, model))
    gc.collect()
    loops.backward(model, rank, 0)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0)))
    del model
    gc.collect()
    assert plan() is None


def test_a_plan_that_was_dropped(pool: Pool) -> None:
    pool.run(dropped, 2)
