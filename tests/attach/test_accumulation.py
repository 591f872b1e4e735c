"""Several backwards to a step: no_sync accumulates, what it has gathered is exchanged once."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

MICRO = 4


def micro_batches(model: nn.Module, rank: int, first: int) -> None:
    for t in range(first, first + MICRO):
        loops.backward(model, rank, t)


def accumulated(rank: int, workers: int, spec: str, to_none: bool) -> None:
    model = loops.mlp()
    relaxed = loops.attach(spec, model)
    for iteration in range(3):
        alone = loops.mean_alone(model, workers, lambda m, r, i=iteration: micro_batches(m, r, i * MICRO))
        with relaxed.no_sync():
            for t in range(MICRO - 1):
                loops.backward(model, rank, iteration * MICRO + t)
        loops.backward(model, rank, iteration * MICRO + MICRO - 1)
        loops.close(loops.gradients(model), alone, 1e-6 if spec == loops.EXACT else 0.1)
        model.zero_grad(set_to_none=to_none)
    relaxed.detach()
    stats = relaxed.stats()
    assert stats["iterations"] == stats["exchanges"] == 3, "exchanged more than once per iteration"
    assert stats["bytes_sent"] == 3 * stats["predicted_bytes_per_iteration"]


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("spec", [loops.EXACT, "relax gradients { compress = 8bit }"])
def test_four_micro_batches_are_exchanged_once(pool: Pool, spec: str, to_none: bool) -> None:
    pool.run(accumulated, 2, spec, to_none)


def delayed(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach("relax gradients { delay = 1 }", model)
    alone = loops.mean_alone(model, workers, lambda m, r: micro_batches(m, r, 0))
    for iteration in range(2):
        model.zero_grad()
        with relaxed.no_sync():
            for t in range(MICRO - 1):
                loops.backward(model, rank, iteration * MICRO + t)
        loops.backward(model, rank, iteration * MICRO + MICRO - 1)
        if iteration == 0:
            assert not any(g.any() for g in loops.gradients(model))
    loops.close(loops.gradients(model), alone)
    relaxed.detach()


def test_a_delay_counts_iterations_not_micro_batches(pool: Pool) -> None:
    pool.run(delayed, 2)


def nested_and_raising(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    with relaxed.no_sync():
        with relaxed.no_sync():
            loops.backward(model, rank, 0)
        loops.backward(model, rank, 1)
    with pytest.raises(KeyError), relaxed.no_sync():
        raise KeyError
    assert relaxed.stats()["iterations"] == 0
    loops.backward(model, rank, 2)
    assert relaxed.stats()["iterations"] == 1
    wanted = loops.mean_alone(model, workers, lambda m, r: [loops.backward(m, r, t) for t in range(3)])
    loops.close(loops.gradients(model), wanted)
    relaxed.detach()


def test_no_sync_nests_and_ends_with_an_exception(pool: Pool) -> None:
    pool.run(nested_and_raising, 2)


def used_early_only(rank: int, workers: int) -> None:
    """The head gets its gradient in the first micro-batch and none in the last."""

    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Linear(6, 3), nn.Linear(3, 3)

        def forward(self, x: torch.Tensor, head: bool) -> torch.Tensor:
            return self.head(self.body(x)) if head else self.body(x)

    def both(m: nn.Module, r: int) -> None:
        m(loops.batch(r, 0)[0], True).square().mean().backward()
        m(loops.batch(r, 1)[0], False).square().mean().backward()

    torch.manual_seed(0)
    model = Two()
    alone = loops.mean_alone(model, workers, both)
    relaxed = loops.attach(loops.EXACT, model)
    with relaxed.no_sync():
        model(loops.batch(rank, 0)[0], True).square().mean().backward()
    model(loops.batch(rank, 1)[0], False).square().mean().backward()
    loops.close(loops.gradients(model), alone)
    relaxed.detach()


def test_what_only_an_early_micro_batch_used_is_exchanged(pool: Pool) -> None:
    pool.run(used_early_only, 2)


def twice(rank: int, workers: int) -> None:
    """A second backward over the same graph is an iteration of its own; unzeroed, the mean adds up as with DDP."""
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    once = loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0))
    loss = loops.loss(model, loops.batch(rank, 0))
    loss.backward(retain_graph=True)
    loops.close(loops.gradients(model), once)
    loss.backward()
    loops.close(loops.gradients(model), [2 * g for g in once])
    assert relaxed.stats()["iterations"] == 2
    relaxed.detach()


def test_a_second_backward_with_retain_graph(pool: Pool) -> None:
    pool.run(twice, 2)


def looked_between(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    loss = loops.loss(model, loops.batch(rank, 0))
    with torch.no_grad():
        model(loops.batch(rank, 7)[0])
    loss.backward()
    with torch.no_grad():
        model(loops.batch(rank, 8)[0])
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0)))
    relaxed.detach()


def test_a_forward_without_gradients_between(pool: Pool) -> None:
    pool.run(looked_between, 2)


def second_order(rank: int, workers: int, spec: str) -> None:
    """`.grad` is the mean, and what the user differentiates again is untouched by its arrival."""
    model = nn.Linear(6, 1, bias=False)
    relaxed = loops.attach(spec, model)
    x = loops.batch(rank, 0)[0]
    loss = model(x).pow(3).sum()
    (mine,) = torch.autograd.grad(loss, [model.weight], create_graph=True)
    before = mine.detach().clone()
    loss.backward(create_graph=True)
    alone = loops.mean_alone(model, workers, lambda m, r: m(loops.batch(r, 0)[0]).pow(3).sum().backward())
    largest = max(loops.batch(r, 0)[0].abs().max().item() for r in range(workers))
    loops.close(loops.gradients(model), alone, 1e-5 if spec == loops.EXACT else 10 * largest)
    assert torch.equal(mine, before)
    assert not model.weight.grad.requires_grad
    (curvature,) = torch.autograd.grad(mine.sum(), [model.weight])
    assert torch.isfinite(curvature).all()
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED, "relax gradients { compress = none }"])
def test_create_graph(pool: Pool, spec: str) -> None:
    pool.run(second_order, 2, spec)
