"""Parameters without a gradient: on one worker, on all, for a while, for good."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

SPECS = [
    loops.EXACT, loops.CODED, "relax gradients { compress = 4bit, feedback = both, route = ring }",
    "relax gradients { delay = 1 }", "relax gradients { compress = 8bit, feedback = both, delay = 1 }",
]  # fmt: skip
FINE = {loops.EXACT: 1e-6, SPECS[3]: 1e-6}
"""Tolerances; coded gradients only need to be near."""


class Branches(nn.Module):
    """`never` is never used; `trunk` always; `left` or `right` as the caller says."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.never, self.trunk = nn.Linear(6, 6), nn.Linear(6, 6)
        self.left, self.right = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, x: torch.Tensor, way: str) -> torch.Tensor:
        return getattr(self, way)(self.trunk(x))


def go(model: nn.Module, rank: int, t: int, way: str) -> None:
    model(loops.batch(rank, t)[0], way).square().mean().backward()


def own_branch(rank: int, workers: int, spec: str) -> None:
    """Rank 0 goes left, the others right: each gets the others' mean, the absent one having contributed zeros."""
    model = Branches()
    relaxed = loops.attach(spec, model)
    rounds = 2 if "delay" in spec else 1
    for _ in range(rounds):
        model.zero_grad()
        go(model, rank, 0, "left" if rank == 0 else "right")
    wanted = loops.mean_alone(model, workers, lambda m, r: go(m, r, 0, "left" if r == 0 else "right"))
    loops.close(loops.gradients(model), wanted, FINE.get(spec, 0.05))
    everyone = loops.everywhere([g for g in loops.gradients(model) if g is not None], workers)
    for other in everyone:
        loops.same(other, everyone[0])
    relaxed.detach()


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_unused_on_some_workers_only(pool: Pool, spec: str, workers: int) -> None:
    pool.run(own_branch, workers, spec)


def nobodys(rank: int, workers: int, spec: str) -> None:
    model = Branches()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1)
    relaxed = loops.plan(spec).attach(model, optimizer)
    before = [p.clone() for p in model.never.parameters()]
    for t in range(4):
        optimizer.zero_grad()
        go(model, rank, t, "left")
        if "delay" not in spec or t > 0:
            assert model.trunk.weight.grad.any()
        optimizer.step()
    assert all(p.grad is None or not p.grad.any() for p in model.never.parameters())
    if "delay" not in spec:
        assert all(p.grad is None for p in model.never.parameters())
    loops.same([p.detach() for p in model.never.parameters()], before)
    relaxed.detach()


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("spec", SPECS)
def test_unused_everywhere_stays_as_it_was(pool: Pool, spec: str, workers: int) -> None:
    pool.run(nobodys, workers, spec)


def losses_wait(rank: int, workers: int, spec: str) -> None:
    """While nobody uses `left`, what its encoders had lost stays to the bit, or (the owners') nearly."""
    model = Branches()
    relaxed = loops.attach(spec, model)
    for t in range(3):
        model.zero_grad()
        go(model, rank, t, "left")
    before = relaxed.state_dict()
    assert any(v.any() for k, v in before.items() if k.startswith("residual/left"))
    for t in range(3, 6):
        model.zero_grad()
        go(model, rank, t, "right")
    after = relaxed.state_dict()
    for key in before:
        if key.startswith("residual/left"):
            assert torch.equal(before[key], after[key]), key
        if key.startswith("owner/left"):
            torch.testing.assert_close(before[key], after[key], rtol=1e-3, atol=1e-7)
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.CODED, SPECS[2], SPECS[4]])
def test_residuals_of_the_unused_are_kept(pool: Pool, spec: str) -> None:
    pool.run(losses_wait, 2, spec)


def for_a_while(rank: int, workers: int, spec: str) -> None:
    """Frozen at step 3 and thawed at step 6 of 8: still in between, and the same on all workers."""
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(spec).attach(model, optimizer)
    frozen = model[2]
    for t in range(8):
        if t in (3, 6):
            frozen.requires_grad_(t == 6)
        before = [p.detach().clone() for p in frozen.parameters()]
        state = relaxed.state_dict() if t == 3 else {}
        loops.step(model, optimizer, rank, t)
        still = all(torch.equal(a, b) for a, b in zip(before, frozen.parameters(), strict=True))
        assert still == (3 <= t < 6), t
        for key, kept in state.items():
            if key.startswith("residual/2."):
                assert torch.equal(relaxed.state_dict()[key], kept), key
    everyone = loops.everywhere(loops.weights(model), workers)
    for other in everyone:
        loops.same(other, everyone[0])
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED])
def test_frozen_for_a_while(pool: Pool, spec: str) -> None:
    pool.run(for_a_while, 2, spec)


def frozen_at_attach(rank: int, workers: int) -> None:
    model = loops.mlp()
    model[0].requires_grad_(False)
    relaxed = loops.attach(loops.EXACT, model)
    assert not any(p.requires_grad for p in model[0].parameters())
    sizes = sum(p.numel() * 4 + 1 for p in model.parameters() if p.requires_grad)
    assert relaxed.stats()["predicted_bytes_per_iteration"] == sizes
    loops.backward(model, rank, 0)
    assert model[0].weight.grad is None
    model[0].requires_grad_(True)
    sentence = loops.refused("RX0410", lambda: loops.backward(model, rank, 1))
    assert "frozen at attach" in sentence and "attach again after thawing" in sentence


def thawed_after_detach(rank: int, workers: int) -> None:
    model = loops.mlp()
    model[0].requires_grad_(False)
    loops.attach(loops.EXACT, model).detach()
    model[0].requires_grad_(True)
    relaxed = loops.attach(loops.EXACT, model)
    loops.backward(model, rank, 0)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0)))
    relaxed.detach()


def test_frozen_at_attach_is_not_exchanged_and_says_so_when_thawed(pool: Pool) -> None:
    pool.run(frozen_at_attach, 2)


def test_frozen_thawed_and_attached_again(pool: Pool) -> None:
    pool.run(thawed_after_detach, 2)


class Shared(nn.Module):
    """Tied weights, a layer used twice, and a parameter at the root."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.token = nn.Parameter(torch.randn(1, 6))
        self.twice = nn.Linear(6, 6)
        self.front, self.back = nn.Linear(6, 6), nn.Linear(6, 6)
        self.back.weight = self.front.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.back(self.front(self.twice(self.twice(x + self.token).tanh())))


def shared(rank: int, workers: int, spec: str) -> None:
    def go(m: nn.Module, r: int) -> None:
        m(loops.batch(r, 0)[0]).square().mean().backward()

    model = Shared()
    relaxed = loops.attach(spec, model)
    assert relaxed.stats()["predicted_bytes_per_iteration"] > 0
    go(model, rank)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, go), 1e-6 if spec == loops.EXACT else 0.05)
    names = {k.split("/")[1] for k in relaxed.state_dict() if k.startswith("residual")}
    assert "back.weight" not in names
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED])
def test_tied_weights_a_layer_used_twice_and_a_root_parameter(pool: Pool, spec: str) -> None:
    pool.run(shared, 2, spec)


def lost_by_a_wrapper(rank: int, workers: int) -> None:
    """Something sets requires_grad to False on one worker only: it contributes zeros and gets the others' mean."""
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    if rank == 1:
        model[2].weight.requires_grad_(False)
    loops.backward(model, rank, 0)
    alone = loops.mean_alone(loops.mlp(), 1, lambda m, r: loops.backward(m, 0, 0))
    torch.testing.assert_close(model[2].weight.grad.double(), alone[2] / 2, rtol=1e-6, atol=1e-7)
    relaxed.detach()


def test_requires_grad_lost_on_one_worker(pool: Pool) -> None:
    pool.run(lost_by_a_wrapper, 2)
