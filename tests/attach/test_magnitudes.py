"""Numbers at the edges: what isn't finite stays in its step, what is tiny or huge arrives."""

from __future__ import annotations

import math

import loops
import pytest
import torch
from pool import Pool
from torch import nn

SPECS = [
    loops.EXACT, loops.CODED, "relax gradients { compress = 4bit, feedback = both, route = ring }",
    "relax gradients { compress = 2bit, feedback = worker }", "relax gradients { compress = 1bit, feedback = both }",
    "relax gradients { compress = absmax(4, block = 64, rounding = stochastic), feedback = both }",
    "relax gradients { compress = bf16 }",
]  # fmt: skip
ELEMENTS = 1301


def given(model: nn.Module, gradient: torch.Tensor) -> torch.Tensor:
    """`.grad` after a backward whose local gradient is `gradient`."""
    model.zero_grad()
    (model.weight * gradient).sum().backward()
    return model.weight.grad.clone()


def flat_model() -> nn.Linear:
    return nn.Linear(ELEMENTS, 1, bias=False)


def one_bad_step(rank: int, workers: int, spec: str, value: float) -> None:
    model = flat_model()
    relaxed = loops.attach(spec, model)
    ones = torch.linspace(0.5, 1.5, ELEMENTS).reshape(1, -1)
    given(model, ones)
    bad = ones.clone()
    if rank == 1:
        bad[0, 700] = value
    found = given(model, bad)
    assert not torch.isfinite(found).all(), "the step looks normal"
    everyone = loops.everywhere([torch.isfinite(found)], workers)
    for other in everyone:
        loops.same(other, everyone[0])
    assert all(torch.isfinite(v).all() for v in relaxed.state_dict().values() if isinstance(v, torch.Tensor))
    for _ in range(2):
        found = given(model, ones)
        assert torch.isfinite(found).all()
    assert (found - ones).abs().max() < 3
    relaxed.detach()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("spec", SPECS)
def test_not_finite_on_one_worker_in_one_step(pool: Pool, spec: str, value: float) -> None:
    pool.run(one_bad_step, 2, spec, value)


def scaled_alike(rank: int, workers: int, spec: str) -> None:
    """1e-12, 1e20 and powers of two: k * x must encode like x."""
    base = torch.randn(1, ELEMENTS, generator=torch.Generator().manual_seed(rank))
    results = []
    for factor in (1.0, 2.0**-40, 2.0**66):
        model = flat_model()
        relaxed = loops.attach(spec, model)
        results.append([given(model, base * factor) / factor for _ in range(2)])
        relaxed.detach()
    for other in results[1:]:
        if "bf16" in spec or "fp16" in spec:
            loops.close(other, results[0], 1e-2)
        else:
            loops.same(other, results[0])


@pytest.mark.parametrize("spec", SPECS)
def test_scale_free(pool: Pool, spec: str) -> None:
    pool.run(scaled_alike, 2, spec)


def plain_values(rank: int, workers: int, spec: str) -> None:
    """All zeros, a constant, all negative, one outlier, denormals: exact where the codec promises it, else near."""
    zeros, constant = torch.zeros(1, ELEMENTS), torch.full((1, ELEMENTS), -3.25)
    outlier = torch.full((1, ELEMENTS), 1e-3)
    outlier[0, 5] = 100.0
    denormal = torch.full((1, ELEMENTS), 1e-41)
    for name, gradient in (("zeros", zeros), ("constant", constant), ("outlier", outlier), ("denormal", denormal)):
        model = flat_model()
        relaxed = loops.attach(spec, model)
        found = given(model, gradient)
        assert torch.isfinite(found).all(), name
        if name in ("zeros", "constant") and "stochastic" not in spec:
            torch.testing.assert_close(found, gradient, rtol=1e-6, atol=0)
        if name == "outlier":
            assert (found - gradient)[0, 1000:].abs().max() < 1e-4, (
                "the outlier's block is not the only one that feels it"
            )
        everyone = loops.everywhere([found], workers)
        loops.same(everyone[0], everyone[-1])
        assert all(torch.isfinite(v).all() for v in relaxed.state_dict().values() if isinstance(v, torch.Tensor))
        relaxed.detach()


@pytest.mark.parametrize("spec", [s for s in SPECS if "1bit" not in s])
def test_zeros_constants_outliers_denormals(pool: Pool, spec: str) -> None:
    pool.run(plain_values, 2, spec)


def overflowing_cast(rank: int, workers: int) -> None:
    """1e6 does not fit fp16: infinite on all workers, never a silent other number; the next step is normal."""
    model = flat_model()
    relaxed = loops.attach("relax gradients { compress = fp16, feedback = both }", model)
    assert torch.isinf(given(model, torch.full((1, ELEMENTS), 1e6))).all()
    ones = torch.ones(1, ELEMENTS)
    loops.same([given(model, ones)], [ones])
    relaxed.detach()


def test_a_cast_that_overflows(pool: Pool) -> None:
    pool.run(overflowing_cast, 2)
