"""Whole exchanges whose kernels are all the emulated CUDA ones, on real workers over Gloo: the same bytes as the CPU's
plan, after each iteration."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from fake_cuda import fake_driver, image_of, standing_in
from given_gradients import ITERATIONS, LOW_RANK, SHAPES, SPECS, plan_of, train
from pool import Pool

FRAGMENT = "algorithm a { step  weight = weight / 2 + weight / 4 }\nrelax with a"


def on_device(rank: int, workers: int, spec: str, driver: str, image: bytes) -> list[bytes]:
    with standing_in(driver, image):
        return train(rank, workers, spec, "cpu", SHAPES)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fake_cuda")


@pytest.fixture(scope="module")
def driver(built: Path) -> str:
    return fake_driver(built)


@pytest.mark.parametrize("name", [*SPECS, "low rank"])
def test_exchanges_by_device_kernels_are_the_cpus(name: str, pool: Pool, driver: str, built: Path) -> None:
    spec = SPECS.get(name, LOW_RANK)
    plan = plan_of(spec, SHAPES)
    image = image_of(plan, built) if plan.manifest.launches else b""
    on_cpu = pool.run(train, 3, spec, "cpu", SHAPES, timeout=200)
    there = pool.run(on_device, 3, spec, driver, image, timeout=200)
    for rank, (wanted, found) in enumerate(zip(on_cpu, there, strict=True)):
        assert [w == f for w, f in zip(wanted, found, strict=True)] == [True] * (ITERATIONS + 1), rank


def launched(rank: int, workers: int, spec: str, driver: str, image: bytes, log: str) -> None:
    os.environ["FAKE_CUDA_LOG"] = log
    try:
        on_device(rank, workers, spec, driver, image)
    finally:
        del os.environ["FAKE_CUDA_LOG"]


def test_every_kernel_of_an_exchange_is_launched_on_the_device(
    pool: Pool, driver: str, built: Path, tmp_path: Path
) -> None:
    """And so none of the CPU's ran: all that the plan has, and grids within limits."""
    spec = SPECS["bytegrad"]
    plan = plan_of(spec, SHAPES)
    pool.run(launched, 3, spec, driver, image_of(plan, built), str(tmp_path / "log"), timeout=200)
    lines = [line.split() for line in (tmp_path / "log").read_text().splitlines()]
    of_route = {launch.symbol for launch in plan.manifest.launches}
    assert {symbol for symbol, _, _ in lines} == of_route
    threads = {launch.symbol: launch.threads for launch in plan.manifest.launches}
    assert all(int(count) == threads[symbol] and 1 <= int(blocks) <= 32 for symbol, blocks, count in lines)


def failing(rank: int, workers: int, spec: str, driver: str, image: bytes) -> str:
    os.environ |= {"FAKE_CUDA_REFUSES": "cuLaunchKernel", "FAKE_CUDA_ERROR": "700"}
    try:
        on_device(rank, workers, spec, driver, image)
    except Exception as error:  # noqa: BLE001 - its text is what is asked for
        return str(error)
    finally:
        del os.environ["FAKE_CUDA_REFUSES"], os.environ["FAKE_CUDA_ERROR"]
    return ""


def test_a_kernel_that_fails_is_named(pool: Pool, driver: str, built: Path) -> None:
    (text,) = pool.run(failing, 1, FRAGMENT, driver, image_of(plan_of(FRAGMENT, SHAPES), built), timeout=200)
    assert re.search(r"kernel relaxc_\w+ was not launched: an illegal memory access was encountered", text), text
