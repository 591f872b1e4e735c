"""Models, data and loops that the tests of attach share; all of it runs on the workers of a pool.

Data are a function of (rank, iteration), so any worker can work out alone, with plain torch, what all of them should get.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import nn

import relaxc
from relaxc.attach.plan import Plan
from relaxc.attach.relaxed import Relaxed

Batch = tuple[torch.Tensor, torch.Tensor]
Gradients = list[torch.Tensor | None]

EXACT = "relax gradients"
CODED = "relax gradients { compress = 8bit, feedback = both }"
LATE = "relax gradients { delay = 2 }"
EVERYTHING = """
relax gradients for "*.bias" { delay = 1 }
relax gradients for "0.*" { compress = minmax(4, block = 16, rounding = stochastic), feedback = both, delay = 2 }
relax gradients { compress = absmax(8, block = 8, rounding = stochastic), feedback = both, route = ring }
"""
"""Codec, both feedbacks, stochastic rounding, two delays and the ring at once."""


@functools.cache
def plan(spec: str) -> Plan:
    return relaxc.compile(spec)


def mlp(seed: int = 0, width: int = 16) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, width), nn.Tanh(), nn.Linear(width, 5), nn.Tanh(), nn.Linear(5, 3))


def sgd(model: nn.Module, lr: float = 0.1) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=0.01)


def attach(spec: str, model: nn.Module, **settings: Any) -> Relaxed:
    """With an optimiser that never steps."""
    return plan(spec).attach(model, torch.optim.SGD(model.parameters(), lr=0.0), timeout=30, **settings)


def batch(rank: int, iteration: int, rows: int = 4) -> Batch:
    draw = torch.Generator().manual_seed(1000 * rank + iteration)
    return torch.randn(rows, 6, generator=draw), torch.randn(rows, 3, generator=draw)


def loss(model: nn.Module, data: Batch) -> torch.Tensor:
    return nn.functional.mse_loss(model(data[0]), data[1])


def backward(model: nn.Module, rank: int, iteration: int) -> None:
    loss(model, batch(rank, iteration)).backward()


def step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, iteration: int) -> None:
    optimizer.zero_grad()
    backward(model, rank, iteration)
    optimizer.step()


def gradients(model: nn.Module) -> Gradients:
    return [None if p.grad is None else p.grad.detach().clone() for p in model.parameters()]


def weights(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def mean_alone(model: nn.Module, workers: int, backward: Callable[[nn.Module, int], None]) -> Gradients:
    """The mean gradient, without relaxc or any process group: `backward(copy of model, rank)` for each rank in turn. None
    where no worker has a gradient."""
    all_grads = []
    for rank in range(workers):
        alone = bare_copy(model)
        backward(alone, rank)
        all_grads.append(gradients(alone))
    return [_mean(of_one, workers) for of_one in zip(*all_grads, strict=True)]


def bare_copy(model: nn.Module) -> nn.Module:
    alone = copy.deepcopy(model)
    alone.zero_grad(set_to_none=True)
    return alone


def _mean(grads: Sequence[torch.Tensor | None], workers: int) -> torch.Tensor | None:
    there = [g for g in grads if g is not None]
    return sum((g.double() for g in there), torch.zeros((), dtype=torch.float64)) / workers if there else None


def close(found: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | None], tolerance: float = 1e-6) -> None:
    for a, b in zip(found, wanted, strict=True):
        if a is None or b is None:
            assert a is None and b is None, (a, b)
        else:
            torch.testing.assert_close(a.double(), b.double(), rtol=tolerance, atol=tolerance)


def same(found: Sequence[torch.Tensor | None], wanted: Sequence[torch.Tensor | None]) -> None:
    """Bit for bit."""
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a is None or b is None:
            assert a is None and b is None, number
        else:
            assert torch.equal(a, b), f"tensor {number}: {a.flatten()[:5]} and {b.flatten()[:5]}"


def everywhere(found: Sequence[torch.Tensor], workers: int) -> list[list[torch.Tensor]]:
    """`found` of every worker, by rank."""
    import torch.distributed as dist

    gathered: list[Any] = [None] * workers
    dist.all_gather_object(gathered, list(found))
    return gathered


def refused(code: str, call: Callable[[], Any]) -> str:
    """The sentence with which `call` is refused; of a RelaxError or of the runtime."""
    with pytest.raises(Exception, match=code) as caught:  # whichever class: the code is the contract
        call()
    return str(caught.value)
