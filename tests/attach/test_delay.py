"""A delay of k: k iterations change nothing at all, then each applies the gradient of k iterations before."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

OPTIMIZERS = {
    "sgd": lambda m: torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9, weight_decay=0.1),
    "adamw": lambda m: torch.optim.AdamW(m.parameters(), lr=0.1, weight_decay=0.1),
}


def nothing_then_late(rank: int, workers: int, kind: str, spec: str, delay: int) -> None:
    model = loops.mlp()
    optimizer = OPTIMIZERS[kind](model)
    relaxed = loops.plan(spec).attach(model, optimizer)
    start = loops.weights(model)
    in_step: list[bool] = []
    optimizer.register_step_pre_hook(lambda *_: in_step.append(model[0].weight.grad is None))
    launched = []
    for t in range(delay + 3):
        optimizer.zero_grad()
        launched.append(loops.mean_alone(model, workers, lambda m, r, t=t: loops.backward(m, r, t)))
        loops.backward(model, rank, t)
        if t < delay:
            assert all(g is not None and not g.any() for g in loops.gradients(model))
        else:
            loops.close(loops.gradients(model), launched[t - delay], 1e-6 if "compress" not in spec else 0.05)
        optimizer.step()
        assert model[0].weight.grad is not None
        if t < delay:
            loops.same(loops.weights(model), start)
            assert not optimizer.state
        else:
            assert not torch.equal(loops.weights(model)[0], start[0])
    assert in_step == [True] * delay + [False] * 3
    relaxed.detach()


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize(
    ("spec", "delay"),
    [("relax gradients { delay = 1 }", 1), (loops.LATE, 2), ("relax gradients { compress = 8bit, delay = 3 }", 3)],
)
def test_nothing_then_the_gradient_of_k_before(pool: Pool, kind: str, spec: str, delay: int) -> None:
    pool.run(nothing_then_late, 2, kind, spec, delay)


def alone(rank: int, workers: int) -> None:
    nothing_then_late(rank, workers, "sgd", loops.LATE, 2)


def test_one_worker(pool: Pool) -> None:
    pool.run(alone, 1)


BODIES = """
relax gradients for "*.bias" { delay = 2 }
relax gradients for "4.*" { compress = 8bit, delay = 1 }
relax gradients
"""


def different(rank: int, workers: int) -> None:
    model = loops.mlp()
    delays = [2 if n.endswith("bias") else 1 if n.startswith("4.") else 0 for n, _ in model.named_parameters()]
    optimizer = loops.sgd(model)
    relaxed = loops.plan(BODIES).attach(model, optimizer)
    assert relaxed.stats()["staleness"] == 2
    launched: list[loops.Gradients] = []
    for t in range(5):
        optimizer.zero_grad()
        launched.append(loops.mean_alone(model, workers, lambda m, r, t=t: loops.backward(m, r, t)))
        loops.backward(model, rank, t)
        before = loops.weights(model)
        for number, (found, delay) in enumerate(zip(loops.gradients(model), delays, strict=True)):
            wanted = launched[t - delay][number] if t >= delay else torch.zeros_like(found)
            loops.close([found], [wanted], 0.05 if delay == 1 else 1e-6)
        optimizer.step()
        moved = [not torch.equal(a, b) for a, b in zip(before, loops.weights(model), strict=True)]
        assert moved == [t >= delay for delay in delays]
    relaxed.detach()


def test_two_bodies_with_different_delays(pool: Pool) -> None:
    pool.run(different, 2)


def zeroed_in_place(rank: int, workers: int) -> None:
    """zero_grad(set_to_none=False) and no zero_grad at all before the first landing."""
    model = loops.mlp()
    relaxed = loops.attach("relax gradients { delay = 1 }", model)
    wanted = loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 1))
    loops.backward(model, rank, 0)
    model.zero_grad(set_to_none=False)
    loops.backward(model, rank, 1)
    model.zero_grad(set_to_none=False)
    loops.backward(model, rank, 2)
    loops.close(loops.gradients(model), wanted)
    relaxed.detach()


def test_zeroed_in_place(pool: Pool) -> None:
    pool.run(zeroed_in_place, 2)


def beside_training(rank: int, workers: int) -> None:
    """The exchange of a slow worker's iteration is waited for only where it is due."""
    import time

    model = nn.Linear(6, 3)
    relaxed = loops.attach("relax gradients { delay = 1 }", model)
    if rank == 1:
        time.sleep(1.5)
    start = time.monotonic()
    loops.backward(model, rank, 0)
    assert time.monotonic() - start < 1.0, "waited for what is not due"
    loops.backward(model, rank, 1)
    relaxed.detach()


def test_nobody_waits_for_what_is_not_due(pool: Pool) -> None:
    pool.run(beside_training, 2)
