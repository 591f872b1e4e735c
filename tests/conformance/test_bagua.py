"""What Bagua's published algorithms do, written out here from their description, against the specs that stand for them.

One parameter is one bucket, a multiple of 512 * workers, so that a worker's share is what Bagua's is: the bucket over the
workers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from pool import Pool

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.evaluate import decode, encode
from relaxc.program.gradients import take_gradient
from relaxc.program.ir import Codec
from relaxc.resources import folder

ELEMENTS, STEPS, RATE = 512 * 12, 12, 0.05


# --- the workers


def gradients(rank: int, dtype: Any) -> list[Any]:
    """Seeded, one for each step, over some magnitudes."""
    import torch

    draw = torch.Generator().manual_seed(rank)
    return [
        torch.randn(ELEMENTS, generator=draw, dtype=torch.float64).to(dtype) * 10.0 ** (step % 3 - 1)
        for step in range(STEPS)
    ]


def targets(rank: int) -> Any:
    import torch

    return torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(50 + rank), dtype=torch.float64)


def exchange(rank: int, workers: int, spec: str) -> list[Any]:
    """`.grad` after backward, in f32."""
    import torch

    import relaxc

    model = torch.nn.ParameterList([torch.zeros(ELEMENTS)])
    relaxed = relaxc.compile(spec).attach(model, torch.optim.SGD(model.parameters(), 0.0), timeout=60)
    found = []
    for made in gradients(rank, torch.float32):
        model.zero_grad()
        (model[0] * made).sum().backward()
        found.append(model[0].grad.clone().numpy())
    assert not [key for key in relaxed.state_dict() if key.startswith(("residual", "owner"))], "nothing is remembered"
    relaxed.detach()
    return found


def train(rank: int, workers: int, spec: str, momentum: float) -> list[Any]:
    """The weight after each step, in f64. A worker's loss is |w - target|^2 / 2."""
    import torch

    import relaxc

    model = torch.nn.ParameterList([torch.zeros(ELEMENTS, dtype=torch.float64)])
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=momentum)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    found = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        ((model[0] - targets(rank)) ** 2).sum().div(2).backward()
        optimizer.step()
        model.state_dict()
        found.append(model[0].detach().clone().numpy())
    relaxed.detach()
    return found


class Local:
    """A simulated worker with torch's own SGD."""

    def __init__(self, rank: int, momentum: float) -> None:
        import torch

        self.parameter = torch.nn.Parameter(torch.zeros(ELEMENTS, dtype=torch.float64))
        self.optimizer = torch.optim.SGD([self.parameter], RATE, momentum=momentum)
        self.target = targets(rank)

    @property
    def weight(self) -> Any:
        return self.parameter.detach().clone()

    @weight.setter
    def weight(self, value: Any) -> None:
        self.parameter.data.copy_(value)

    def backward(self) -> None:
        self.parameter.grad = self.weight - self.target

    def step(self) -> None:
        self.optimizer.step()


# --- MinMaxUInt8


def levels(x: Any) -> tuple[Any, Any, Any]:
    """(least, greatest, a byte for each element): scale = 255 / (max - min + 1e-7); U = rint(max * scale); L = U - 255;
    level = min(rint(x * scale), U) - L. The two travel in f32."""
    low, high = x.min().float().to(x.dtype), x.max().float().to(x.dtype)
    scale, upper = bounds(low, high)
    return low, high, (x * scale).round().minimum(upper) - (upper - 255)


def bounds(low: Any, high: Any) -> tuple[Any, Any]:
    scale = high.new_tensor(255) / (high - low + 1e-7)  # 255 / x would be 255 * (1 / x) in torch
    return scale, (high * scale).round()


def coded(x: Any) -> Any:
    """(level + L) / scale"""
    low, high, level = levels(x)
    scale, upper = bounds(low, high)
    return (level + (upper - 255)) / scale


def scatter_gather(values: list[Any]) -> Any:
    """Quantised before the all-to-all, each worker's share averaged, quantised again before the all-gather."""
    import torch

    workers = len(values)
    shares = [value.chunk(workers) for value in values]
    means = [sum(coded(shares[peer][owner]) for peer in range(workers)) * (1 / workers) for owner in range(workers)]
    return torch.cat([coded(mean) for mean in means])


def bagua_s_codec() -> Codec:
    text = (folder("specs") / "bagua_minmax.relax").read_text()
    (body,) = pipeline.to_program(pipeline.to_spec(Source("bagua_minmax", text), {})).bodies
    gradient, _ = take_gradient(body.statements)
    assert gradient is not None and gradient.exchange.codec is not None
    return gradient.exchange.codec


@pytest.mark.parametrize(
    "made",
    [
        lambda draw: draw.standard_normal(1000),
        lambda draw: -1 - draw.random(1000),
        lambda draw: draw.standard_normal(7) * 1e-5,
        lambda draw: np.append(draw.standard_normal(999) * 1e-3, 100.0),
        lambda draw: np.zeros(5),
        lambda draw: np.array([0.5, 1.5, 2.5, -0.5, 255.0, 0.0]),
    ],
)
def test_the_codec_s_bytes(made: Callable[[Any], Any]) -> None:
    import torch

    x = made(np.random.default_rng(5)).astype(np.float32)
    low, high, level = levels(torch.from_numpy(x))
    assert level.min() >= 0 and level.max() <= 255
    wanted = np.array([low, high], np.float32).tobytes() + level.numpy().astype(np.uint8).tobytes()
    assert encode(bagua_s_codec(), x) == wanted


def test_a_constant_share_arrives() -> None:
    """Its scale is 255 / 1e-7, where f32 has no room for 255 steps and Bagua's level overflows its byte."""
    codec, x = bagua_s_codec(), np.full(33, 0.75, np.float32)
    np.testing.assert_allclose(decode(codec, encode(codec, x), 33, np.float32), x, rtol=1e-6)


# --- centralised


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_gradient_allreduce(pool: Pool, workers: int) -> None:
    import torch

    made = [gradients(rank, torch.float32) for rank in range(workers)]
    for found in pool.run(exchange, workers, "allreduce"):
        for step, gradient in enumerate(found):
            mean = sum(made[rank][step].double() for rank in range(workers)).numpy() / workers
            np.testing.assert_allclose(gradient, mean, rtol=1e-5, atol=1e-6 * np.abs(mean).max())


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_byte_grad_to_the_bit(pool: Pool, workers: int) -> None:
    import torch

    made = [gradients(rank, torch.float32) for rank in range(workers)]
    for found in pool.run(exchange, workers, "bagua_minmax"):
        for step, gradient in enumerate(found):
            wanted = scatter_gather([made[rank][step] for rank in range(workers)])
            np.testing.assert_array_equal(gradient, wanted.numpy())


@pytest.mark.parametrize("workers", [2, 4])
def test_bytegrad_is_byte_grad_on_a_finer_grid(pool: Pool, workers: int) -> None:
    """Two roundings of half a level each, nothing remembered; its blocks are parts of Bagua's shares, so no level is wider."""
    import torch

    made = [gradients(rank, torch.float32) for rank in range(workers)]
    for found in pool.run(exchange, workers, "bytegrad"):
        for step, gradient in enumerate(found):
            exact = sum(made[rank][step].double() for rank in range(workers)) / workers
            theirs = scatter_gather([made[rank][step] for rank in range(workers)]).double()
            level = max(float(np.ptp(made[rank][step].numpy())) for rank in range(workers)) / 255
            ours = np.abs(gradient - exact.numpy())
            assert ours.max() <= 1.01 * level
            assert 0.2 * level < ours.max(), "it is coded"
            assert np.abs(ours).mean() <= (theirs - exact).abs().mean()


# --- decentralised


def decentralised(partners: Callable[[int, int], list[int]], workers: int) -> list[list[Any]]:
    """avg(x_t) over `partners(step, rank)`, then the optimiser steps with the gradient taken at x_t."""
    team = [Local(rank, 0.9) for rank in range(workers)]
    made: list[list[Any]] = [[] for _ in team]
    for step in range(STEPS):
        weights = [worker.weight for worker in team]
        for rank, worker in enumerate(team):
            worker.backward()
            heard = [weights[peer] for peer in partners(step, rank)]
            worker.weight = sum(heard) / len(heard)
            worker.step()
            made[rank].append(worker.weight.numpy())
    return made


def same(found: list[list[Any]], wanted: list[list[Any]]) -> None:
    for of_worker, right in zip(found, wanted, strict=True):
        for step, (weight, expected) in enumerate(zip(of_worker, right, strict=True)):
            assert np.abs(weight - expected).max() <= 1e-9 * np.abs(expected).max(), step


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_decentralised_over_all(pool: Pool, workers: int) -> None:
    found = pool.run(train, workers, "relax with dpsgd { topology = complete }", 0.9)
    same(found, decentralised(lambda step, rank: list(range(workers)), workers))


@pytest.mark.parametrize("workers", [2, 4])
def test_decentralised_by_shift_one(pool: Pool, workers: int) -> None:
    half = workers // 2

    def partner(step: int, rank: int) -> int:
        return (step + rank) % half + half if rank < half else (rank - half - step) % half

    found = pool.run(train, workers, "shift_one", 0.9)
    same(found, decentralised(lambda step, rank: [rank, partner(step, rank)], workers))


@pytest.mark.parametrize("workers", [3, 4])
def test_low_precision_decentralised(pool: Pool, workers: int) -> None:
    """After the optimiser z = x + L/3 + R/3 - 5/3 W; Q(z) is sent; L, R and W move by what they hear, and x = W. With two
    workers Bagua hears the other one twice, which no doubly stochastic ring does."""
    team = [Local(rank, 0.9) for rank in range(workers)]
    left, right, own = ([worker.weight for worker in team] for _ in range(3))
    made: list[list[Any]] = [[] for _ in team]
    for _ in range(STEPS):
        codes = []
        for rank, worker in enumerate(team):
            worker.backward()
            worker.step()
            codes.append(coded(worker.weight + left[rank] / 3 + right[rank] / 3 - 5 / 3 * own[rank]))
        for rank, worker in enumerate(team):
            left[rank] = left[rank] + codes[(rank - 1) % workers]
            right[rank] = right[rank] + codes[(rank + 1) % workers]
            own[rank] = own[rank] + codes[rank]
            worker.weight = own[rank]
            made[rank].append(worker.weight.numpy())
    spec = "relax with dcd_psgd { compress = bagua_minmax }"
    same(pool.run(train, workers, spec, 0.9), made)


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_qadam(pool: Pool, workers: int) -> None:
    """Adam on mean gradients while warming up; then v stays, m = b1 m + (1 - b1) g is averaged in 8 bits, and
    x -= lr / (1 - b1^t) * m / (sqrt(v) / sqrt(1 - b2^t) + eps)."""
    import torch

    warmup, b1, b2, eps = 5, 0.9, 0.999, 1e-8
    x = torch.zeros(ELEMENTS, dtype=torch.float64)
    m, v, made = 0 * x, 0 * x, []
    for t in range(1, STEPS + 1):
        local = [x - targets(rank) for rank in range(workers)]
        if t <= warmup:
            mean = sum(local) / workers
            m, v = b1 * m + (1 - b1) * mean, b2 * v + (1 - b2) * mean**2
        else:
            m = scatter_gather([b1 * m + (1 - b1) * gradient for gradient in local])
        x = x - RATE / (1 - b1**t) * m / (v.sqrt() / (1 - b2**t) ** 0.5 + eps)
        made.append(x.numpy())
    spec = f"relax with qadam {{ warmup = {warmup}, compress = bagua_minmax }}"
    same(pool.run(train, workers, spec, 0.0), [made] * workers)
