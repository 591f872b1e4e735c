"""On a card: whole exchanges give the bytes that the CPU's plan gives, after each iteration and in the plan's state."""

from __future__ import annotations

import os
import time

import given_gradients
import numpy as np
import pytest
import torch
import torch.distributed as dist
from given_gradients import ITERATIONS, LOW_RANK, SHAPES, SPECS, model_of, train
from one_matrix import exchanged, matrix_on
from pool import Pool

import relaxc

LARGE = {"large": (1_000_003,), "matrix": (1024, 513), "small": (7,)}


def both(pool: Pool, workers: int, spec: str, shapes: dict[str, tuple[int, ...]]) -> None:
    on_cpu = pool.run(train, workers, spec, "cpu", shapes, timeout=200)
    on_card = pool.run(train, workers, spec, "cuda:0", shapes, "cpu,cuda", timeout=200)
    for rank, (wanted, found) in enumerate(zip(on_cpu, on_card, strict=True)):
        assert [w == f for w, f in zip(wanted, found, strict=True)] == [True] * (ITERATIONS + 1), rank


@pytest.mark.parametrize("name", SPECS)
def test_two_ranks_share_a_card_over_gloo(name: str, pool: Pool) -> None:
    both(pool, 2, SPECS[name], SHAPES)


def test_low_rank(pool: Pool) -> None:
    """The products are another library's there; the weights are close, and alike on both ranks. What the plan keeps has
    signs that a decomposition is free to choose."""
    on_cpu = pool.run(train, 2, LOW_RANK, "cpu", SHAPES, timeout=200)
    near(pool.run(train, 2, LOW_RANK, "cuda:0", SHAPES, "cpu,cuda", timeout=200), on_cpu[0])


def test_low_rank_asks_the_card_for_nothing() -> None:
    """Waiting for it would be an error."""
    matrix = matrix_on("cuda:0")
    torch.cuda.set_sync_debug_mode("error")
    try:
        made = exchanged(matrix)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert all(bool(values.isfinite().all()) for values in made)


def near(found: list[list[bytes]], wanted: list[bytes]) -> None:
    """After each iteration, for all ranks."""
    for iteration in range(ITERATIONS):
        (made,) = {weights[iteration] for weights in found}
        right = np.frombuffer(wanted[iteration], np.float32)
        np.testing.assert_allclose(np.frombuffer(made, np.float32), right, atol=2e-4, rtol=0)


@pytest.mark.parametrize("name", ["bytegrad", "choco", "one_bit_adam"])
def test_large_tensors(name: str, pool: Pool) -> None:
    both(pool, 2, SPECS[name], LARGE)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_one_rank_in_other_types(dtype: str, pool: Pool) -> None:
    """A mean over one worker that keeps what it loses."""
    found = pool.run(typed, 1, dtype, "cuda:0", timeout=200)
    assert found == pool.run(typed, 1, dtype, "cpu", timeout=200)


def typed(rank: int, workers: int, dtype: str, device: str) -> bytes:
    model = model_of(LARGE).to(device, getattr(torch, dtype))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    spec = "relax gradients { compress = 4bit, feedback = worker }"
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=120)
    made = b""
    for iteration in range(2):
        optimizer.zero_grad()
        given_gradients.backward(model, rank, iteration)
        made += b"".join(p.grad.cpu().view(torch.uint8).numpy().tobytes() for p in model.values())
    relaxed.detach()
    return made


def on_a_stream(rank: int, workers: int, spec: str) -> list[bytes]:
    with torch.cuda.stream(torch.cuda.Stream()):
        return train(rank, workers, spec, "cuda:0", LARGE, "cuda")


def test_a_loop_on_a_stream_of_its_own(pool: Pool) -> None:
    """Nothing of the exchange is ordered behind the default stream only."""
    spec = SPECS["choco"]
    assert pool.run(on_a_stream, 2, spec, timeout=200) == pool.run(train, 2, spec, "cpu", LARGE, timeout=200)


def over_nccl(rank: int, workers: int, spec: str, store: str) -> list[bytes]:
    dist.destroy_process_group()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=workers)
    return train(rank, workers, spec, f"cuda:{rank}", SHAPES, "cuda")


@pytest.mark.parametrize("name", ["bytegrad", "choco", "dense"])
def test_in_a_job_over_nccl(name: str, pool: Pool, tmp_path: os.PathLike[str]) -> None:
    """With as many ranks as there are cards, one included: of two and more, messages go from card to card. A sum of more
    than two floats is of any order."""
    workers = min(torch.cuda.device_count(), 2 if name == "dense" else 4)
    wanted = pool.run(train, workers, SPECS[name], "cpu", SHAPES, timeout=200)
    assert pool.run(over_nccl, workers, SPECS[name], f"{tmp_path}/store", timeout=200) == wanted


def test_low_rank_over_nccl(pool: Pool, tmp_path: os.PathLike[str]) -> None:
    workers = min(torch.cuda.device_count(), 2)
    on_cpu = pool.run(train, workers, LOW_RANK, "cpu", SHAPES, timeout=200)
    near(pool.run(over_nccl, workers, LOW_RANK, f"{tmp_path}/store", timeout=200), on_cpu[0])


def lost_over_nccl(rank: int, workers: int, store: str) -> str:
    """Rank 1 stops after two iterations, and lives on until the other has said so."""
    dist.destroy_process_group()
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=workers)
    model = model_of(SHAPES).to(f"cuda:{rank}")
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-6)
    _relaxed = given_gradients.plan_of(SPECS["bytegrad"], SHAPES, "cuda").attach(model, optimizer, timeout=5)
    try:
        for iteration in range(2 if rank == 1 else 1000):
            optimizer.zero_grad()
            given_gradients.backward(model, rank, iteration)
            optimizer.step()
            time.sleep(0.01)
    except relaxc.errors.ExchangeError as error:
        return str(error)
    time.sleep(15)
    return ""


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="a worker that is lost over NCCL needs a second card")
def test_a_worker_that_is_lost_over_nccl(pool: Pool, tmp_path: os.PathLike[str]) -> None:
    """By relaxc, before NCCL's watchdog ends the process."""
    said, _ = pool.run(lost_over_nccl, 2, f"{tmp_path}/store", timeout=120)
    assert "RX0603" in said and "iteration 2" in said and "rank 1" in said


def test_no_room_is_said_before_anything_is_made() -> None:
    model = torch.nn.Linear(1000, 1000, device="cuda")
    free, _ = torch.cuda.mem_get_info()
    filled = torch.empty(free - (8 << 20), dtype=torch.uint8, device="cuda")
    try:
        plan = relaxc.compile("relax with choco { gamma = 0.3 }")
        if not dist.is_initialized():
            dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        before = torch.cuda.memory_allocated()
        with pytest.raises(relaxc.errors.ModelError, match=r"RX0425: the plan needs \d+ MB on cuda:0 beside the model"):
            plan.attach(model, torch.optim.SGD(model.parameters(), lr=0.1))
        assert torch.cuda.memory_allocated() == before
    finally:
        del filled
        dist.destroy_process_group()
