"""torch.compile, before and after attach; compiled autograd can't run the hooks and says so."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn


def compiled(rank: int, workers: int, backend: str, before: bool, spec: str) -> None:
    torch._dynamo.reset()
    bare = loops.mlp()
    model = torch.compile(bare, backend=backend)
    relaxed = loops.attach(spec, model if before else bare)
    for t in range(2):
        bare.zero_grad()
        loops.backward(model, rank, t)
        wanted = loops.mean_alone(bare, workers, lambda m, r, t=t: loops.backward(m, r, t))
        loops.close(loops.gradients(bare), wanted, 1e-5 if spec == loops.EXACT else 0.05)
    names = {key.split("/")[1] for key in relaxed.state_dict() if key.startswith("residual/")}
    assert names == ({name for name, _ in bare.named_parameters()} if spec == loops.CODED else set())
    relaxed.detach()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("backend", "spec"), [("eager", loops.CODED), ("aot_eager", loops.EXACT), ("aot_eager", loops.CODED)]
)
def test_compiled_before_and_after_attach(pool: Pool, backend: str, before: bool, spec: str) -> None:
    pool.run(compiled, 2, backend, before, spec)


def selected_by_name(rank: int, workers: int) -> None:
    """Selectors know the model's own names, whether it was compiled before or not."""
    spec = 'relax gradients for "0.*" { compress = 8bit, feedback = both }\nrelax gradients'
    relaxed = loops.attach(spec, torch.compile(loops.mlp(), backend="eager"))
    kept = {key for key in relaxed.state_dict() if key.startswith("residual/")}
    assert kept == {f"residual/0.{part}/rank{rank}" for part in ("weight", "bias")}
    relaxed.detach()


def test_selectors_see_through_the_wrapper(pool: Pool) -> None:
    pool.run(selected_by_name, 2)


def compiled_autograd(rank: int, workers: int) -> None:
    from torch._dynamo import compiled_autograd

    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    loss = loops.loss(model, loops.batch(rank, 0))
    with compiled_autograd._enable(lambda graph: graph):
        sentence = loops.refused("RX0610", loss.backward)
    assert "torch._dynamo.config.compiled_autograd = False" in sentence
    model.zero_grad()
    loops.backward(model, rank, 1)
    loops.close(loops.gradients(model), loops.mean_alone(model, workers, lambda m, r: loops.backward(m, r, 1)))
    relaxed.detach()


def test_compiled_autograd_is_refused(pool: Pool) -> None:
    pool.run(compiled_autograd, 2)


class Recomputed(nn.Module):
    """`inner` is recomputed in backward, `times` times over."""

    def __init__(self, reentrant: bool, times: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.inner, self.last = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.reentrant, self.times = reentrant, times

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        x = self.first(x)
        for _ in range(self.times):
            x = checkpoint(self.inner, x, use_reentrant=self.reentrant)
        return self.last(x)


def recomputed(rank: int, workers: int, reentrant: bool, times: int, spec: str) -> None:
    model = Recomputed(reentrant, times)
    relaxed = loops.attach(spec, model)
    for t in range(3):
        model.zero_grad()
        loops.backward(model, rank, t)
        wanted = loops.mean_alone(model, workers, lambda m, r, t=t: loops.backward(m, r, t))
        loops.close(loops.gradients(model), wanted, 1e-5 if spec == loops.EXACT else 0.05)
    assert relaxed.stats()["iterations"] == 3
    relaxed.detach()


@pytest.mark.parametrize("spec", [loops.EXACT, loops.CODED])
@pytest.mark.parametrize(("reentrant", "times"), [(False, 1), (False, 2), (True, 1)])
def test_activation_checkpointing(pool: Pool, reentrant: bool, times: int, spec: str) -> None:
    pool.run(recomputed, 2, reentrant, times, spec)


def reentrant_twice(rank: int, workers: int) -> None:
    model = Recomputed(True, 2)
    relaxed = loops.attach(loops.EXACT, model)
    sentence = loops.refused("RX0611", lambda: loops.backward(model, rank, 0))
    assert "inner" in sentence and "use_reentrant=False" in sentence
    relaxed._finalizer()


def test_reentrant_checkpointing_of_a_module_used_twice(pool: Pool) -> None:
    pool.run(reentrant_twice, 1)
