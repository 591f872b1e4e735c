"""When backward() returns, `.grad` is what the plan says: clipping and custom code see it, as with DDP."""

from __future__ import annotations

import copy

import loops
import pytest
import torch
from pool import Pool
from torch.nn.parallel import DistributedDataParallel


def as_ddp(rank: int, workers: int, bitwise: bool) -> None:
    model = loops.mlp(width=300)
    ddp = DistributedDataParallel(copy.deepcopy(model), gradient_as_bucket_view=True)
    ours, theirs = loops.sgd(model), loops.sgd(ddp)
    relaxed = loops.plan(loops.EXACT).attach(model, ours)
    for t in range(4):
        loops.step(ddp, theirs, rank, t)
        loops.step(model, ours, rank, t)
        compare = loops.same if bitwise else loops.close
        compare(loops.gradients(model), loops.gradients(ddp))
        compare(loops.weights(model), loops.weights(ddp))
    relaxed.detach()


@pytest.mark.parametrize(("workers", "bitwise"), [(1, True), (2, True), (3, False)])
def test_uncompressed_is_data_parallel_training(pool: Pool, workers: int, bitwise: bool) -> None:
    pool.run(as_ddp, workers, bitwise)


def mean_when_backward_returns(rank: int, workers: int) -> None:
    model = loops.mlp(seed=rank)  # attach makes all of them rank 0's
    relaxed = loops.attach(loops.EXACT, model)
    loops.same(loops.weights(model), loops.weights(loops.mlp(seed=0)))
    loops.backward(model, rank, 0)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0)))
    relaxed.detach()


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_grad_is_the_mean_when_backward_returns(pool: Pool, workers: int) -> None:
    pool.run(mean_when_backward_returns, workers)


def coded_as_interpreted(rank: int, workers: int) -> None:
    from relaxc import pipeline
    from relaxc.attach.parameters import read_parameters
    from relaxc.language.source import Source
    from relaxc.program.interpret import Interpreter

    program = pipeline.to_program(pipeline.to_spec(Source("spec", loops.CODED), {}))
    model = loops.mlp()
    plan = loops.plan(loops.CODED)
    oracle = Interpreter(program, read_parameters(model).parameters, workers, plan.manifest.seed)
    relaxed = loops.attach(loops.CODED, model)
    for t in range(3):
        local = []
        for w in range(workers):
            alone = loops.bare_copy(model)
            loops.backward(alone, w, t)
            local.append([p.grad.numpy().ravel() for p in alone.parameters()])
        model.zero_grad()
        loops.backward(model, rank, t)
        wanted = [torch.from_numpy(g) for g in oracle.iterate(local)[rank]]
        loops.same([g.ravel() for g in loops.gradients(model)], wanted)
    relaxed.detach()


def test_coded_is_what_the_interpreter_says(pool: Pool) -> None:
    pool.run(coded_as_interpreted, 3)


def clipped(rank: int, workers: int) -> None:
    model = loops.mlp()
    alone = loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0))
    norm = torch.stack([g.norm() for g in alone]).norm()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    relaxed = loops.plan(loops.EXACT).attach(model, optimizer)
    before = loops.weights(model)
    loops.backward(model, rank, 0)
    found = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    torch.testing.assert_close(found.double(), norm, rtol=1e-5, atol=0)
    optimizer.step()
    loops.close(loops.weights(model), [w - g * (0.01 / norm) for w, g in zip(before, alone, strict=True)])
    relaxed.detach()


def test_clipping_sees_the_mean(pool: Pool) -> None:
    pool.run(clipped, 2)


def edited(rank: int, workers: int, spec: str) -> None:
    """Ones in place of the gradients, in place and as new tensors: the optimiser must take them."""
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    relaxed = loops.plan(spec).attach(model, optimizer)
    for t in range(2):
        before = loops.weights(model)
        optimizer.zero_grad()
        loops.backward(model, rank, t)
        for p in model.parameters():
            if t == 0:
                p.grad.fill_(1.0)
            else:
                p.grad = torch.ones_like(p)
        optimizer.step()
        loops.same(loops.weights(model), [w - 1 for w in before])
    loops.backward(model, rank, 2)  # nothing of the edits is left where gradients are exchanged
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED])
def test_the_optimiser_takes_what_the_user_made_of_it(pool: Pool, spec: str) -> None:
    pool.run(edited, 2, spec)


def seen_by_hooks(rank: int, workers: int) -> None:
    """A hook of the user's on the tensor runs before the exchange, on the local gradient: its result is what is averaged."""
    model = loops.mlp()
    alone = loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 0))
    relaxed = loops.attach(loops.EXACT, model)
    for p in model.parameters():
        p.register_hook(lambda grad: grad * 3)
    loops.backward(model, rank, 0)
    loops.close(loops.gradients(model), [g * 3 for g in alone])
    relaxed.detach()


def test_hooks_of_the_user_come_first(pool: Pool) -> None:
    pool.run(seen_by_hooks, 2)


def own_memory(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.CODED, model)
    loops.backward(model, rank, 0)
    where = [p.grad.data_ptr() for p in model.parameters()]
    own = [torch.full_like(p, 0.5) for p in model.parameters()]
    for p, mine in zip(model.parameters(), own, strict=True):
        p.grad = mine
    loops.backward(model, rank, 1)
    assert [p.grad.data_ptr() for p in model.parameters()] == [g.data_ptr() for g in own]
    model.zero_grad(set_to_none=False)
    loops.backward(model, rank, 2)
    assert [p.grad.data_ptr() for p in model.parameters()] == [g.data_ptr() for g in own]
    assert where
    assert sum(t.numel() for bucket in relaxed._running.flat for t in bucket) == 0
    relaxed.detach()


def test_no_copy_where_a_codec_is_on_the_way(pool: Pool) -> None:
    pool.run(own_memory, 2)


def fires_nothing(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    torch.autograd.grad(loops.loss(model, loops.batch(rank, 0)), list(model.parameters()))
    assert relaxed.stats()["iterations"] == 0
    assert loops.gradients(model) == [None] * 6
    relaxed.detach()


def test_autograd_grad_exchanges_nothing(pool: Pool) -> None:
    pool.run(fires_nothing, 2)
