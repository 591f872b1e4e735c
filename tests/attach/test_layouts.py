"""Whatever order, size and dtype a parameter has: `.grad` is the mean, in the parameter's own layout."""

from __future__ import annotations

import loops
import pytest
import torch
from pool import Pool
from torch import nn

TOLERANCE = {torch.float32: 1e-6, torch.float64: 1e-12, torch.float16: 2e-3, torch.bfloat16: 2e-2}
ORDERS = {
    "channels_last": lambda: torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last),
    "channels_last_1x1": lambda: torch.randn(8, 6, 1, 1).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(7, 5).t(),
    "permuted": lambda: torch.randn(3, 4, 5).permute(2, 0, 1),
    "unaligned": lambda: torch.randn(36)[1:].view(5, 7),
    "odd_side": lambda: torch.randn(12).as_strided((1, 12), (99, 1)),
}
SIZES = [(0,), (3, 0), (), (1,), (2,), (3,), (17,), (4999,)]
SPECS = [
    loops.EXACT, loops.CODED, "relax gradients { compress = 4bit, route = ring }",
    "relax gradients { compress = bf16 }", "relax gradients { delay = 1 }",
]  # fmt: skip


def loss(model: nn.ParameterDict, rank: int) -> torch.Tensor:
    """Its gradient by parameter number n is (rank + 1) * (0, 1, 2 ..) / (n + 1), in logical order."""
    total = torch.zeros((), dtype=torch.float64)
    for n, p in enumerate(model.parameters()):
        total = total + (p.double() * ramp(p, n) * (rank + 1)).sum()
    return total


def ramp(p: torch.Tensor, n: int) -> torch.Tensor:
    return torch.arange(p.numel(), dtype=torch.float64).reshape(p.shape) / max(p.numel(), 1) / (n + 1)


def mean_in_place(rank: int, workers: int, kind: str, spec: str) -> None:
    torch.manual_seed(0)
    model = MODELS[kind]()
    strides = [p.stride() for p in model.parameters()]
    relaxed = loops.attach(spec, model)
    for _ in range(2):
        model.zero_grad(set_to_none=False)
        loss(model, rank).backward()
    mean = sum(range(1, workers + 1)) / workers
    for n, (p, stride) in enumerate(zip(model.parameters(), strides, strict=True)):
        wanted = ramp(p, n) * mean
        tolerance = TOLERANCE[p.dtype] if spec in (loops.EXACT, SPECS[4]) else 0.2 / (n + 1)
        torch.testing.assert_close(p.grad.double(), wanted, rtol=tolerance, atol=tolerance)
        assert p.grad.dtype == p.dtype
        assert [s for s, k in zip(p.grad.stride(), p.shape, strict=True) if k != 1] == [
            s for s, k in zip(stride, p.shape, strict=True) if k != 1
        ]
    relaxed.detach()
    stats = relaxed.stats()
    assert stats["bytes_sent"] == 2 * stats["predicted_bytes_per_iteration"]


MODELS = {
    "orders": lambda: nn.ParameterDict({k: nn.Parameter(make()) for k, make in ORDERS.items()}),
    "sizes": lambda: nn.ParameterDict({f"s{n}": torch.randn(shape) for n, shape in enumerate(SIZES)}),
    "dtypes": lambda: nn.ParameterDict(
        {f"in_{str(d).rpartition('.')[2]}": torch.randn(9, 31, dtype=torch.float64).to(d) for d in TOLERANCE}
    ),
    "large_then_small": lambda: nn.ParameterDict(
        {"small1": torch.randn(3), "small2": torch.randn(5, 2), "large": torch.randn(7_000_001), "last": torch.randn(2)}
    ),
    "thousand": lambda: nn.ParameterDict({f"p{n}": torch.randn(n % 4) for n in range(1000)}),
}


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["orders", "sizes", "dtypes"])
@pytest.mark.parametrize("workers", [1, 3])
def test_the_mean_arrives_in_the_parameters_own_layout(pool: Pool, kind: str, spec: str, workers: int) -> None:
    pool.run(mean_in_place, workers, kind, spec)


@pytest.mark.parametrize("spec", SPECS[:2])
@pytest.mark.parametrize("kind", ["large_then_small", "thousand"])
def test_many_tensors_and_one_beyond_every_bucket(pool: Pool, kind: str, spec: str) -> None:
    pool.run(mean_in_place, 2, kind, spec)


def foreign_order(rank: int, workers: int, spec: str) -> None:
    """The user hands in a `.grad` in another order of memory than the parameter's."""
    model = nn.ParameterDict({"w": torch.zeros(6, 4)})
    relaxed = loops.attach(spec, model)
    model["w"].grad = torch.zeros(4, 6).t()
    loss(model, rank).backward()
    torch.testing.assert_close(model["w"].grad.double(), ramp(model["w"], 0) * 1.5, rtol=0.02, atol=0.02)
    relaxed.detach()


@pytest.mark.parametrize("spec", SPECS[:2])
def test_a_gradient_in_another_order(pool: Pool, spec: str) -> None:
    pool.run(foreign_order, 2, spec)


def fused_one_by_one(rank: int, workers: int) -> None:
    """A side of length 1 has any stride; autograd's gradient is used where it lies, all the same."""
    model = nn.Conv2d(6, 8, 1, bias=False).to(memory_format=torch.channels_last)
    relaxed = loops.attach(loops.CODED, model)
    own = torch.zeros(8, 6, 1, 1)
    assert own.stride() != model.weight.stride()
    model.weight.grad = own
    model(torch.randn(2, 6, 3, 3)).square().sum().backward()
    assert model.weight.grad is own or model.weight.grad.data_ptr() == own.data_ptr()
    relaxed.detach()


def test_no_copy_for_the_stride_of_a_side_of_length_one(pool: Pool) -> None:
    pool.run(fused_one_by_one, 2)
