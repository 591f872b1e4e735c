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


Shapes = dict[str, tuple[int, ...]]


def on_device(rank: int, workers: int, spec: str, driver: str, image: bytes, shapes: Shapes = SHAPES) -> list[bytes]:
    with standing_in(driver, image):
        return train(rank, workers, spec, "cpu", shapes)


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


def launched(
    rank: int, workers: int, spec: str, driver: str, image: bytes, log: str, shapes: Shapes = SHAPES
) -> list[bytes]:
    os.environ["FAKE_CUDA_LOG"] = log
    try:
        return on_device(rank, workers, spec, driver, image, shapes)
    finally:
        del os.environ["FAKE_CUDA_LOG"]


def grids(log: Path) -> list[tuple[str, int, int]]:
    """Kernel, blocks and threads of each launch."""
    lines = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    return [(symbol, int(blocks), int(threads)) for symbol, blocks, threads in lines]


def test_every_kernel_of_an_exchange_is_launched_on_the_device(
    pool: Pool, driver: str, built: Path, tmp_path: Path
) -> None:
    """And so none of the CPU's ran: all that the plan has, and grids within limits."""
    spec = SPECS["bytegrad"]
    plan = plan_of(spec, SHAPES)
    pool.run(launched, 3, spec, driver, image_of(plan, built), str(tmp_path / "log"), timeout=200)
    lines = grids(tmp_path / "log")
    threads = {launch.symbol: launch.threads for launch in plan.manifest.launches}
    assert {symbol for symbol, _, _ in lines} == set(threads)
    assert all(count == threads[symbol] for symbol, _, count in lines)


LARGEST_GRID = 32
"""16 for each of the two multiprocessors that the driver tells of."""


@pytest.mark.parametrize("elements", [0, 1, 31 * 32, 32 * 32, 33 * 32, 40_000])
def test_grids_keep_within_limits(elements: int, pool: Pool, driver: str, built: Path, tmp_path: Path) -> None:
    """Of no block none is launched; of more than a card takes at once each thread block works on several."""
    spec, shapes = "relax gradients { compress = minmax(8, block = 32) }", {"w": (elements,)}
    plan = plan_of(spec, shapes)
    log = tmp_path / "log"
    found = pool.run(launched, 1, spec, driver, image_of(plan, built), str(log), shapes, timeout=200)
    assert found == pool.run(train, 1, spec, "cpu", shapes, timeout=200)
    launches = {blocks for _, blocks, _ in grids(log)}
    assert launches == ({min(-(-elements // 32), LARGEST_GRID)} if elements else set())


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
