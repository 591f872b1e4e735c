"""Exceptions in the user's forward and backward; models converted, copied and pickled under a plan."""

from __future__ import annotations

import copy
import pickle

import loops
import pytest
import torch
from pool import Pool
from torch import nn


class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        raise ZeroDivisionError("in the user's backward")


def goes_on(rank: int, workers: int, spec: str) -> None:
    """Backward ends before anything has left: the next iteration is as if it had not been."""
    model = loops.mlp()
    relaxed = loops.attach(spec, model)
    for t in range(3):
        model.zero_grad()
        with pytest.raises(ZeroDivisionError):
            loops.loss(
                model[4], (Raising.apply(model[:4](loops.batch(rank, t)[0])), loops.batch(rank, t)[1])
            ).backward()
        model.zero_grad()
        with pytest.raises(RuntimeError, match="mat1"):
            model(torch.zeros(2, 7))
        loops.backward(model, rank, t)
        wanted = loops.mean_alone(model, workers, lambda m, r, t=t: loops.backward(m, r, t))
        loops.close(loops.gradients(model), wanted, 1e-6 if spec == loops.EXACT else 0.05)
    assert relaxed.stats()["iterations"] == 3
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, "relax gradients { compress = 8bit, feedback = both, route = ring }"])
def test_an_exception_before_anything_left(pool: Pool, spec: str) -> None:
    pool.run(goes_on, 2, spec)


class Waits(torch.autograd.Function):
    """Raises in backward once the first bucket has left."""

    @staticmethod
    def forward(ctx, x, relaxed):
        ctx.relaxed = relaxed
        return x.clone()

    @staticmethod
    def backward(ctx, grad):
        import time

        while ctx.relaxed.stats()["bytes_sent"] == 0:
            time.sleep(0.01)
        raise ZeroDivisionError


def after_it_left(rank: int, workers: int) -> None:
    """The last layer makes a bucket of its own, which leaves while backward goes on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 600), nn.Linear(600, 600), nn.Linear(600, 3))
    relaxed = loops.attach(loops.EXACT, model)
    assert relaxed.stats()["buckets"] > 1
    x, y = loops.batch(rank, 0)
    with pytest.raises(ZeroDivisionError):
        loops.loss(model[1:], (Waits.apply(model[0](x), relaxed), y)).backward()
    for call in (lambda: loops.backward(model, rank, 1), relaxed.state_dict, relaxed.residual_norms):
        assert "restart the run from a checkpoint" in loops.refused("RX0612", call)
    loops.refused("RX0612", relaxed.detach)
    model.zero_grad()
    loops.backward(model, rank, 2)  # the hooks are gone all the same


def test_an_exception_after_something_left(pool: Pool) -> None:
    pool.run(after_it_left, 2)


def converted(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(loops.EXACT).attach(model, optimizer)
    model.double()
    x, y = loops.batch(rank, 0)
    loops.loss(model, (x.double(), y.double())).backward()
    sentence = loops.refused("RX0409", optimizer.step)
    assert "0.weight" in sentence and "before attach" in sentence
    relaxed.detach()


def test_a_model_converted_after_attach(pool: Pool) -> None:
    pool.run(converted, 2)


def copied(rank: int, workers: int, spec: str) -> None:
    """A copy is a bare model: it trains alone, and the original goes on with the plan."""
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer)
    loops.step(model, optimizer, rank, 0)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        other.zero_grad()
        loops.same(loops.weights(other), loops.weights(model))
        loops.backward(other, rank, 1)
        alone = loops.mean_alone(model, 1, lambda m, _: loops.backward(m, rank, 1))
        loops.close(loops.gradients(other), alone)
    pickle.dumps(copy.deepcopy(optimizer))
    assert relaxed.stats()["iterations"] == 1
    loops.step(model, optimizer, rank, 1)
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED, loops.LATE])
def test_copies_and_pickles_of_the_model(pool: Pool, spec: str) -> None:
    pool.run(copied, 2, spec)


def buffers(rank: int, workers: int) -> None:
    """BatchNorm's statistics, a counter, a flag: all become rank 0's."""
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    model(torch.randn(8, 6))
    model.register_buffer("seen", torch.tensor(rank == 0))
    model.register_buffer("turned", torch.full((3, 2), float(rank)).t())
    relaxed = loops.attach(loops.EXACT, model)
    found = [b.double() for b in model.buffers()]
    everyone = loops.everywhere(found, workers)
    loops.same(everyone[0], everyone[1])
    assert model.seen and not model.turned.any() and model.turned.stride() == (1, 2)
    loops.backward(model, rank, 0)
    relaxed.detach()


def test_buffers_become_rank_0s(pool: Pool) -> None:
    pool.run(buffers, 2)


def on_one_worker(rank: int, workers: int) -> str:
    """Only rank 1 raises, after its last layer's bucket left; what rank 0 ends with."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 600), nn.Linear(600, 600), nn.Linear(600, 3))
    relaxed = loops.attach(loops.EXACT, model)
    x, y = loops.batch(rank, 0)
    if rank == 1:
        with pytest.raises(ZeroDivisionError):
            loops.loss(model[1:], (Waits.apply(model[0](x), relaxed), y)).backward()
        return loops.refused("RX0612", lambda: loops.backward(model, rank, 1))
    return loops.refused("RX0603", lambda: loops.backward(model, rank, 0))


def test_the_other_workers_learn_of_it_before_their_timeout(pool: Pool) -> None:
    told, _ = pool.run(on_one_worker, 2, timeout=20)  # loops.attach gives them 30 seconds
    assert "backward midway on rank 1" in told
