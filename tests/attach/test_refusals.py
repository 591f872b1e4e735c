"""Models that a plan can't serve are refused at attach, on every worker, with what to do; nothing has been changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loops
import pytest
import torch
from pool import Pool
from torch import nn


class Holder(nn.Module):
    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner


def ddp() -> nn.Module:
    return nn.parallel.DistributedDataParallel(loops.mlp())


def fsdp() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = loops.mlp()
    return fully_shard(model, mesh=init_device_mesh("cpu", (torch.distributed.get_world_size(),)))


def dtensor() -> nn.Module:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, distribute_tensor

    mesh = init_device_mesh("cpu", (torch.distributed.get_world_size(),))
    return Holder(nn.Parameter(distribute_tensor(torch.zeros(4), mesh, [Replicate()])))


def frozen() -> nn.Module:
    return loops.mlp().requires_grad_(False)


CASES: dict[str, tuple[str, Callable[[], nn.Module], str]] = {
    "ddp": ("RX0403", ddp, "bare model"),
    "ddp inside": ("RX0403", lambda: Holder(ddp()), "module inner is wrapped by DistributedDataParallel"),
    "fsdp": ("RX0403", fsdp, "FSDP"),
    "dtensor": ("RX0403", dtensor, "inner is a DTensor"),
    "sparse": ("RX0406", lambda: Holder(nn.Embedding(5, 3, sparse=True)), "sparse=False"),
    "sparse bag": ("RX0406", lambda: Holder(nn.EmbeddingBag(5, 3, sparse=True)), "sparse=False"),
    "no data": ("RX0404", lambda: nn.Linear(3, 3, device="meta"), "to_empty"),
    "lazy": ("RX0404", lambda: nn.Sequential(nn.LazyLinear(3)), "one forward pass"),
    "frozen": ("RX0402", frozen, "no parameter that requires a gradient"),
    "empty": ("RX0402", nn.ReLU, "no parameter"),
    "complex": ("RX0407", lambda: Holder(nn.Parameter(torch.zeros(3, dtype=torch.complex64))), "complex64"),
    "expanded": ("RX0408", lambda: Holder(nn.Parameter(torch.zeros(3, 1).expand(3, 4))), "contiguous"),
    "gaps": ("RX0408", lambda: Holder(nn.Parameter(torch.zeros(8)[::2])), "contiguous"),
}


def refusal(rank: int, workers: int, case: str) -> None:
    code, make, words = CASES[case]
    model = make()
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    sentence = loops.refused(code, lambda: loops.plan(loops.CODED).attach(model, optimizer, timeout=20))
    assert words in sentence, sentence
    assert not optimizer._optimizer_step_pre_hooks


@pytest.mark.parametrize("case", CASES)
def test_refused_with_what_to_do(pool: Pool, case: str) -> None:
    pool.run(refusal, 2, case)


def functional_sparse(rank: int, workers: int) -> None:
    """A sparse gradient that no module announced is met in backward."""
    model = Holder(nn.Parameter(torch.zeros(5, 3)))
    relaxed = loops.attach(loops.EXACT, model)
    rows = torch.nn.functional.embedding(torch.tensor([1, 2]), model.inner, sparse=True)
    assert "sparse=False" in loops.refused("RX0406", rows.sum().backward)
    relaxed.detach()


def test_a_sparse_gradient_by_surprise(pool: Pool) -> None:
    pool.run(functional_sparse, 2)


def on_one_only(rank: int, workers: int) -> None:
    model = loops.mlp() if rank == 0 else frozen()
    code = "RX0601" if rank == 0 else "RX0402"
    sentence = loops.refused(code, lambda: loops.attach(loops.EXACT, model))
    if rank == 0:
        assert "attach was refused on rank 1" in sentence and "no parameter" in sentence


def test_a_refusal_on_one_worker_ends_all(pool: Pool) -> None:
    pool.run(on_one_only, 2)


def twice(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.EXACT, model)
    assert "detach()" in loops.refused("RX0411", lambda: loops.attach(loops.CODED, model))
    assert "detach()" in loops.refused("RX0411", lambda: loops.attach(loops.CODED, nn.Sequential(model)))
    loops.backward(model, rank, 0)
    relaxed.detach()
    relaxed.detach()
    loops.attach(loops.CODED, model).detach()


def test_attached_twice(pool: Pool) -> None:
    pool.run(twice, 2)


def ungoverned(rank: int, workers: int) -> None:
    sentence = loops.refused("RX0401", lambda: loops.attach("relax gradients for ndim >= 2", loops.mlp()))
    assert "0.bias and 2 more" in sentence


def test_a_parameter_that_no_statement_governs(pool: Pool) -> None:
    pool.run(ungoverned, 2)


def no_world() -> None:
    plan = loops.plan(loops.EXACT)
    model = loops.mlp()
    assert "init_process_group" in loops.refused("RX0600", lambda: plan.attach(model, loops.sgd(model)))


def outside(rank: int, workers: int) -> None:
    torch.distributed.destroy_process_group()
    no_world()


def test_without_torch_distributed(pool: Pool) -> None:
    pool.run(outside, 1)


@pytest.mark.parametrize("spec", [
    "relax gradients { compress = topk(1%) }", "relax gradients { compress = ternary }", "relax with dgc",
    "algorithm a { step  weight = mix(weight / (1 + norm(weight)), ring) }\nrelax with a",
])  # fmt: skip
def test_a_tensor_that_is_too_large_to_be_one_block(spec: str) -> None:
    """A kernel counts the elements of a block in 32 bits; with blocks of their own tensors may have any size."""
    from types import SimpleNamespace

    from relaxc.attach import fitting
    from relaxc.errors import ModelError
    from relaxc.wire.parameters import Parameter

    def fit(text: str, elements: int) -> None:
        manifest, read = loops.plan(text).manifest, SimpleNamespace(parameters=[Parameter(0, "w", (elements,), "bf16")])
        fitting._refuse_large(manifest, read, [0])  # type: ignore[arg-type]

    fit(spec, 2**31 - 2**13)
    fit("relax gradients { compress = 4bit }", 2**33)
    with pytest.raises(ModelError, match="RX0416: parameter w has 2,147,483,656 elements"):
        fit(spec, 2**31 + 8)


def short_of_memory(rank: int, workers: int) -> str:
    """topk takes a tensor as a block, and so needs scratch as large: here there is none to be had."""
    import resource

    model = nn.Module()
    model.weight = nn.Parameter(torch.zeros(1 << 25))
    relaxed = loops.plan("relax gradients { compress = topk(10) }").attach(
        model, torch.optim.SGD([model.weight], 0.1), timeout=30
    )
    loss = model.weight.sum()
    model.weight.grad = torch.zeros(1 << 25)
    pages = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()  # noqa: SIM115, PTH123
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages + (200 << 20), before[1]))
    try:
        return loops.refused("RX0603", lambda: backward(loss, relaxed))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def backward(loss: torch.Tensor, relaxed: Any) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
    relaxed.complete()


def test_a_kernel_that_gets_no_memory_ends_in_an_error(pool: Pool) -> None:
    for said in pool.run(short_of_memory, 1):
        assert "no memory for scratch" in said


def captured(rank: int, workers: int) -> str:
    model = loops.mlp()
    relaxed = loops.plan(loops.EXACT).attach(model, torch.optim.SGD(model.parameters(), 0.1), timeout=30)
    x, _ = loops.batch(rank, 0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(torch.cuda, "is_initialized", lambda: True)
        patched.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        with torch.no_grad():
            model(x)
        said = loops.refused("RX0631", lambda: model(x))
    relaxed.detach()
    return said


def test_a_step_captured_in_a_cuda_graph(pool: Pool) -> None:
    for said in pool.run(captured, 1):
        assert "in whose replay no hook runs" in said
