"""What a plan says about itself: bytes as predicted, ranges for the profiler, drift; and what it leaves alone."""

from __future__ import annotations

import contextlib
import io
import random

import loops
import numpy as np
import pytest
import torch
from pool import Pool

import relaxc

SPECS = [loops.EXACT, loops.CODED, loops.LATE, loops.EVERYTHING, "relax gradients { compress = 1bit, route = ring }"]


def bytes_sent(rank: int, workers: int, spec: str) -> None:
    model = loops.mlp(width=301)
    relaxed = loops.attach(spec, model)
    for t in range(5):
        model.zero_grad()
        loops.backward(model, rank, t)
    relaxed.detach()
    stats = relaxed.stats()
    assert all(isinstance(v, (int, float)) for v in stats.values())
    assert stats["exchanges"] == stats["iterations"] == 5
    assert stats["bytes_sent"] == 5 * stats["predicted_bytes_per_iteration"]
    assert stats["exchange_seconds"] >= 0 and stats["exposed_seconds"] >= 0
    if workers > 1 and spec == loops.CODED:
        whole = sum(p.numel() * 4 for p in model.parameters())
        assert stats["predicted_wire_bytes_per_iteration"] < 0.35 * 2 * (workers - 1) / workers * whole, (
            "not compressed"
        )


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("spec", SPECS)
def test_bytes_are_the_plans(pool: Pool, spec: str, workers: int) -> None:
    pool.run(bytes_sent, workers, spec)


def norms(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.CODED, model)
    assert set(relaxed.residual_norms().values()) == {0.0}
    loops.backward(model, rank, 0)
    state, found = relaxed.state_dict(), relaxed.residual_norms()
    for name, _ in model.named_parameters():
        parts = [v.flatten() for k, v in state.items() if k.startswith(("residual/", "owner/")) and f"/{name}/" in k]
        np.testing.assert_allclose(found[name], torch.cat(parts).norm().item(), rtol=1e-5)
    assert max(found.values()) > 0
    relaxed.detach()


def test_residual_norms(pool: Pool) -> None:
    pool.run(norms, 2)


def ranges(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed = loops.attach(loops.CODED, model)
    loops.backward(model, rank, 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        loops.backward(model, rank, 1)
    names = {event.key for event in profile.key_averages()}
    assert {f"relaxc::{what}/bucket0" for what in ("encode", "reduce", "decode")} <= names, names
    relaxed.detach()


def test_ranges_for_the_profiler(pool: Pool) -> None:
    pool.run(ranges, 2)


def generators() -> tuple[object, ...]:
    numpys = np.random.get_state(legacy=False)  # noqa: NPY002 - the global one
    return random.getstate(), str(numpys), torch.get_rng_state().tolist()


def left_alone(rank: int, workers: int) -> None:
    """The global generators, torch's settings and both standard streams."""
    import relaxc

    spec = "relax gradients { compress = minmax(4, rounding = stochastic), feedback = both }"
    relaxc.compile(spec)  # a first build says that it builds
    random.seed(1)
    np.random.seed(2)  # noqa: NPY002 - the user's generator is the global one
    torch.manual_seed(3)
    model = loops.mlp()
    before = generators(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()
    streams = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
        optimizer = loops.sgd(model)
        relaxed = relaxc.compile(spec).attach(model, optimizer, check_every=1)
        data = [loops.batch(rank, t) for t in range(5)]
        for x, y in data:
            optimizer.zero_grad()
            loops.loss(model, (x, y)).backward()
            optimizer.step()
        relaxed.state_dict()
        relaxed.detach()
    assert (generators(), torch.get_num_threads(), torch.is_grad_enabled(), torch.get_default_dtype()) == before
    assert [s.getvalue() for s in streams] == ["", ""]


def test_the_users_generators_and_streams_are_left_alone(pool: Pool) -> None:
    pool.run(left_alone, 2)


def drift(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(loops.CODED).attach(model, optimizer, check_every=2)
    for t in range(4):
        loops.step(model, optimizer, rank, t)
    if rank == 1:
        with torch.no_grad():
            model[2].bias[3] += 1e-7
            model[4].weight[0, 0] += 1
    loops.step(model, optimizer, rank, 4)
    sentence = loops.refused("RX0605", lambda: loops.step(model, optimizer, rank, 5))
    assert "rank 1's parameter 2.bias" in sentence and "after iteration 6" in sentence
    relaxed.detach()


def test_drift_names_the_first_parameter(pool: Pool) -> None:
    pool.run(drift, 3)


def kernels_counted(rank: int, workers: int, spec: str) -> None:
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=30)
    before = relaxed.stats()["kernel_seconds"]
    loops.backward(model, rank, 0)
    optimizer.step()
    relaxed.complete()
    assert relaxed.stats()["kernel_seconds"] > before
    relaxed.detach()


@pytest.mark.parametrize("spec", ["choco", "bytegrad", "dpsgd"])
def test_time_in_kernels_is_counted_whoever_runs_them(pool: Pool, spec: str) -> None:
    pool.run(kernels_counted, 2, spec)
