"""consensus(): within it every replica is the average of all, after it each is its own again."""

from __future__ import annotations

from typing import Any

import loops
import pytest
import torch
from pool import Pool
from torch import nn

from relaxc.errors import ExchangeError

CHOCO = "relax with choco { compress = 1bit }"
AHEAD = "relax with dpsgd { topology = ring }"
ATC = "relax with dpsgd_atc"
MIXED = 'relax gradients for "*.bias"\nrelax with choco'


class WithBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = loops.mlp()
        self.norm = nn.BatchNorm1d(3)
        self.register_buffer("seen", torch.zeros(2, dtype=torch.int64))
        self.register_buffer("turned", torch.zeros(2, dtype=torch.complex64))
        self.register_buffer("nothing", torch.zeros(0))

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.norm(self.body(inputs))


def everything(model: nn.Module) -> list[torch.Tensor]:
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def averaged(rank: int, workers: int, spec: str) -> None:
    model = WithBuffers()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    model.seen += rank + 1
    model.turned += complex(rank, -rank)
    relaxed.complete()
    own = everything(model)
    replicas = loops.everywhere(own, workers)
    with relaxed.consensus():
        inside = everything(model)
        for n, tensor in enumerate(inside):
            if tensor.dtype == torch.int64:
                wanted = replicas[0][n]
            else:
                wide = torch.complex128 if tensor.is_complex() else torch.float64
                wanted = (sum(r[n].to(wide) for r in replicas) / workers).to(tensor.dtype)
            torch.testing.assert_close(tensor, wanted, rtol=1e-6, atol=1e-7)
        with relaxed.consensus():
            loops.same(everything(model), inside)
        loops.same(everything(model), inside)
        for other in loops.everywhere(inside, workers):
            loops.same(other, inside)
    loops.same(everything(model), own)
    relaxed.detach()


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("spec", [CHOCO, MIXED, loops.EXACT, "relax with local_sgd { period = 2 }"])
def test_the_average_and_back(pool: Pool, spec: str, workers: int) -> None:
    pool.run(averaged, workers, spec)


def differ(rank: int, workers: int) -> None:
    """The replicas of a plan that mixes do differ, so the average is not each one's own."""
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(CHOCO).attach(model, optimizer)
    loops.step(model, optimizer, rank, 0)
    relaxed.complete()
    own = loops.weights(model)
    with relaxed.consensus():
        assert not all(torch.equal(a, b) for a, b in zip(own, loops.weights(model), strict=True))
    relaxed.detach()


def test_replicas_differ(pool: Pool) -> None:
    pool.run(differ, 2)


def in_between(rank: int, workers: int, spec: str) -> None:
    """Evaluation in consensus between iterations changes nothing of the training, whatever is under way."""
    results = []
    for evaluates in (False, True):
        model = loops.mlp()
        optimizer = loops.sgd(model)
        relaxed = loops.plan(spec).attach(model, optimizer)
        for t in range(4):
            loops.step(model, optimizer, rank, t)
            if evaluates:
                with relaxed.consensus(), torch.no_grad():
                    model.eval()
                    model(loops.batch(rank, 99)[0])
                    model.state_dict()
                    model.train()
        relaxed.complete()
        results.append(loops.weights(model))
        relaxed.detach()
    loops.same(*results)


@pytest.mark.parametrize("spec", [AHEAD, ATC, "relax weights { every = 2, delay = 1 }", loops.LATE])
def test_training_goes_on_as_if_nothing_had_been(pool: Pool, spec: str) -> None:
    pool.run(in_between, 2, spec)


def refused_within(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(ATC).attach(model, optimizer)
    with relaxed.consensus():
        loops.backward(model, rank, 0)
        assert "train outside" in loops.refused("RX0617", optimizer.step)
    with pytest.raises(KeyError), relaxed.consensus():
        raise KeyError("an error of the user's")
    optimizer.step()
    relaxed.detach()


def test_training_within_is_refused(pool: Pool) -> None:
    pool.run(refused_within, 2)


def failed(rank: int, workers: int) -> None:
    """As where a worker is lost after some of the weights were averaged; the next one averages."""
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(CHOCO).attach(model, optimizer)
    loops.step(model, optimizer, rank, 0)
    relaxed.complete()
    own = everything(model)
    inside = relaxed._consensus
    average = inside._average

    def broken() -> None:
        average()
        raise RuntimeError("connection closed by peer")

    inside._average = broken
    with pytest.raises(ExchangeError, match="RX0603"), relaxed.consensus():
        pytest.fail("it was entered")
    loops.same(everything(model), own)
    del inside._average
    with relaxed.consensus():
        found = everything(model)
        for other in loops.everywhere(found, workers):
            loops.same(other, found)
        assert any(not torch.equal(a, b) for a, b in zip(found, own, strict=True))
    loops.same(everything(model), own)
    relaxed.detach()


def test_one_that_fails_is_undone(pool: Pool) -> None:
    pool.run(failed, 2)
