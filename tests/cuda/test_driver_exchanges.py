"""Whole exchanges whose kernels are all the emulated CUDA ones, on real workers over Gloo: the same bytes as the CPU's
plan, after each iteration."""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from fake_cuda import fake_driver, image_of, standing_in
from pool import Pool
from torch import nn

import relaxc
from relaxc.attach.plan import Plan

SPECS = {
    "bytegrad": "relax with bytegrad",
    "choco": "relax with choco { compress = topk(10%), gamma = 0.3 }",
    "one_bit_adam": "relax with one_bit_adam { warmup = 2 }",
    "topk": "relax gradients { compress = topk(5%) }",
    "ring, stochastic, late": "relax gradients { compress = minmax(4, block = 96, rounding = stochastic), "
    "feedback = worker, route = ring, delay = 1 }",
    "dct": "relax gradients { compress = dct(8, 5) }",
    "low rank": "relax gradients { compress = lowrank(2) }",
    "modulo": "relax weights { compress = modulo(8bit) }",
    "asynchronous": "algorithm a { step  let q = encode(weight, 8bit)\n"
    "  after async(max = 1) { weight += (mix(q, ring) - decode(q)) / 2 } }\nrelax with a",
    "dense": "relax gradients",
}
ITERATIONS = 4


def model_of(rank: int) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(37, 33), nn.Tanh(), nn.Linear(33, 40), nn.Tanh(), nn.Linear(40, 3))


def plan_of(spec: str) -> Plan:
    return relaxc.compile(spec, model=model_of(0))


def train(rank: int, workers: int, spec: str, stand_in: tuple[str, bytes] | None) -> list[bytes]:
    """The bytes of weights after each iteration, then those of the plan's state."""
    model = model_of(rank)
    kind = torch.optim.Adam if "adam" in spec else torch.optim.SGD
    optimizer = kind(model.parameters(), lr=0.01)
    found = []
    with standing_in(*stand_in) if stand_in is not None else nullcontext():
        relaxed = plan_of(spec).attach(model, optimizer, timeout=120)
    for iteration in range(ITERATIONS):
        draw = torch.Generator().manual_seed(1000 * rank + iteration)
        optimizer.zero_grad()
        nn.functional.mse_loss(model(torch.randn(4, 37, generator=draw)), torch.ones(4, 3)).backward()
        optimizer.step()
        relaxed.complete()
        found.append(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    state = relaxed.state_dict()
    found.append(b"".join(v.numpy().tobytes() for k, v in sorted(state.items()) if isinstance(v, torch.Tensor)))
    relaxed.detach()
    return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fake_cuda")


@pytest.fixture(scope="module")
def driver(built: Path) -> str:
    return fake_driver(built)


@pytest.mark.parametrize("name", SPECS)
def test_exchanges_by_device_kernels_are_the_cpus(name: str, pool: Pool, driver: str, built: Path) -> None:
    spec = SPECS[name]
    plan = plan_of(spec)
    image = image_of(plan, built) if plan.manifest.launches else b""
    on_cpu = pool.run(train, 3, spec, None, timeout=200)
    on_device = pool.run(train, 3, spec, (driver, image), timeout=200)
    for rank, (wanted, found) in enumerate(zip(on_cpu, on_device, strict=True)):
        assert [w == f for w, f in zip(wanted, found, strict=True)] == [True] * (ITERATIONS + 1), rank


def launched(rank: int, workers: int, spec: str, stand_in: tuple[str, bytes], log: str) -> None:
    os.environ["FAKE_CUDA_LOG"] = log
    try:
        train(rank, workers, spec, stand_in)
    finally:
        del os.environ["FAKE_CUDA_LOG"]


def test_every_kernel_of_an_exchange_is_launched_on_the_device(
    pool: Pool, driver: str, built: Path, tmp_path: Path
) -> None:
    """And so none of the CPU's ran: all that the plan has, and grids within limits."""
    spec = SPECS["bytegrad"]
    plan = plan_of(spec)
    pool.run(launched, 3, spec, (driver, image_of(plan, built)), str(tmp_path / "log"), timeout=200)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    of_route = {launch.symbol for launch in plan.manifest.launches}
    assert {symbol for symbol, _, _ in lines} == of_route
    threads = {launch.symbol: launch.threads for launch in plan.manifest.launches}
    assert all(int(count) == threads[symbol] and 1 <= int(blocks) <= 32 for symbol, blocks, count in lines)


def failing(rank: int, workers: int, spec: str, stand_in: tuple[str, bytes]) -> str:
    os.environ |= {"FAKE_CUDA_REFUSES": "cuLaunchKernel", "FAKE_CUDA_ERROR": "700"}
    try:
        train(rank, workers, spec, stand_in)
    except Exception as error:  # noqa: BLE001 - its text is what is asked for
        return str(error)
    finally:
        del os.environ["FAKE_CUDA_REFUSES"], os.environ["FAKE_CUDA_ERROR"]
    return ""


FRAGMENT = "algorithm a { step  weight = weight / 2 + weight / 4 }\nrelax with a"


def test_a_kernel_that_fails_is_named(pool: Pool, driver: str, built: Path) -> None:
    (text,) = pool.run(failing, 1, FRAGMENT, (driver, image_of(plan_of(FRAGMENT), built)), timeout=200)
    assert re.search(r"kernel relaxc_\w+ was not launched: an illegal memory access was encountered", text), text
