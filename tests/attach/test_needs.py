"""Weights that are waited for where a forward first reads them: the same weights, later; and what breaks the promise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from pool import Pool, WorkerError
from torch import nn

import relaxc
from relaxc.attach.plan import Plan
from relaxc.manifest import BucketPlan, FitPlan
from relaxc.schedule.fit import with_fit

MIX = "relax weights { topology = ring }"
CODED = "relax weights { topology = ring, compress = 8bit }"
AVERAGE = "relax updates { every = 2, compress = 8bit }"


LEFT = {MIX: (0, 1, 1, 0, 0, 1), CODED: (0, 1, 1, 0, 0, 1), AVERAGE: (0, 0, 1, 0, 0, 1)}
"""Incomplete buckets behind the first layer in each forward: in the first one nothing is believed yet, the fourth is an
evaluation, behind which nothing is left."""


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(12, 9), nn.Linear(9, 4)
        self.early = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


def plan_of(spec: str, readers: bool = True) -> Plan:
    plan = relaxc.compile(spec)
    buckets = tuple(
        BucketPlan(0, (f"{name}.weight", f"{name}.bias"), (name, name) if readers else ())
        for name in ("first", "second")
    )
    return replace(plan, manifest=with_fit(plan.manifest, FitPlan(2, "by hand", (), buckets, 0.0)))


def start(spec: str, readers: bool = True) -> tuple[Net, torch.optim.Optimizer, Any]:
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    return net, optimizer, plan_of(spec, readers).attach(net, optimizer, timeout=30)


def step(net: Net, optimizer: torch.optim.Optimizer, rank: int, t: int) -> None:
    x = torch.randn(8, 12, generator=torch.Generator().manual_seed(100 * rank + t))
    net(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()


def waiting(relaxed: Any) -> int:
    """Buckets whose weights are not complete, within a forward."""
    tail = relaxed._programs.clocks[0].tail
    return len(tail.left) if tail is not None else 0


def weights(rank: int, workers: int, spec: str, readers: bool) -> tuple[list[list[float]], list[int]]:
    net, optimizer, relaxed = start(spec, readers)
    left: list[int] = []
    net.first.register_forward_hook(lambda *_: left.append(waiting(relaxed)))
    for t in range(5):
        step(net, optimizer, rank, t)
        if t == 2:
            with torch.no_grad():
                net(torch.zeros(1, 12))  # complete at once: nobody says what an evaluation reads
    relaxed.detach()
    return [p.detach().flatten().tolist() for p in net.parameters()], left


@pytest.mark.parametrize("spec", [MIX, CODED, AVERAGE])
def test_weights_are_complete_where_they_are_read(pool: Pool, spec: str) -> None:
    whole = pool.run(weights, 3, spec, False)
    parts = pool.run(weights, 3, spec, True)
    assert [w for w, _ in whole] == [w for w, _ in parts]
    assert {tuple(left) for _, left in whole} == {(0,) * 6}
    assert {tuple(left) for _, left in parts} == {LEFT[spec]}


def without_backward(rank: int, workers: int) -> list[list[float]]:
    """A forward that no backward follows, one that ends in an exception, a part by itself, and complete()."""
    net, optimizer, relaxed = start(MIX)
    for t in range(3):
        step(net, optimizer, rank, t)
    net(torch.zeros(1, 12))
    step(net, optimizer, rank, 3)
    with pytest.raises(RuntimeError):
        net(torch.zeros(1, 5))
    assert waiting(relaxed) == 1
    net.second(torch.zeros(1, 9))
    assert waiting(relaxed) == 0, "a part by itself, behind an exception, waits for all"
    step(net, optimizer, rank, 4)
    relaxed.complete()
    assert waiting(relaxed) == 0
    relaxed.detach()
    return [p.detach().flatten().tolist() for p in net.parameters()]


def test_forwards_that_lead_nowhere_change_nothing(pool: Pool) -> None:
    whole = [w for w, _ in pool.run(plain, 2)]
    assert pool.run(without_backward, 2) == whole


def plain(rank: int, workers: int) -> tuple[list[list[float]], int]:
    net, optimizer, relaxed = start(MIX, readers=False)
    for t in range(5):
        step(net, optimizer, rank, t)
    relaxed.detach()
    return [p.detach().flatten().tolist() for p in net.parameters()], 0


class Functional(Net):
    """Once `early`, reads the second layer's weight without calling the layer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(x))
        return nn.functional.linear(hidden, self.second.weight, self.second.bias) if self.early else self.second(hidden)


def functional(rank: int, workers: int) -> None:
    net = Functional()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    plan_of(MIX).attach(net, optimizer, timeout=30)
    for t in range(3):
        step(net, optimizer, rank, t)
    net.early = True
    step(net, optimizer, rank, 3)


def test_a_weight_that_is_read_elsewhere_is_refused(pool: Pool) -> None:
    with pytest.raises(WorkerError, match=r"RX0616: weights of second\.weight were read before they were complete"):
        pool.run(functional, 2)


def compiled(rank: int, workers: int) -> list[int]:
    net, optimizer, relaxed = start(MIX)
    left: list[int] = []
    net.compile(backend="eager")
    for t in range(3):
        step(net, optimizer, rank, t)
        left.append(waiting(relaxed))
    relaxed.detach()
    return left


def test_a_compiled_model_waits_for_all(pool: Pool) -> None:
    assert pool.run(compiled, 2) == [[0, 0, 0]] * 2
