"""Messages that pair up by their order alone, in groups, as over NCCL: the same bytes as over Gloo, and an end where a
worker is lost."""

from __future__ import annotations

import time
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import loops
import ordered_groups
import pytest
import torch
import torch.distributed as dist
from given_gradients import ITERATIONS, SHAPES, SPECS, backward, model_of, plan_of, train
from pool import Pool
from torch._C._distributed_c10d import Store

import relaxc
from relaxc.attach import ordered as groups_in_order
from relaxc.attach.ordered import over_nccl
from relaxc.errors import ExchangeError

TWO_QUEUES = "relax weights for ndim < 2 { topology = ring }\nrelax gradients { compress = 8bit }"
MORE = {
    "gather": "relax gradients { compress = 8bit, route = gather }",
    "rounds": "relax with dpsgd { topology = one_peer_exponential }",
    "pairs": "relax weights { topology = random_pairs }",
    "push": "sgp",
    "relay": "relaysgd",
    "late": "relax updates { every = 2, compress = 4bit, delay = 1 }",
    "two queues": TWO_QUEUES,
    "low rank": "powersgd",
}


@pytest.fixture(scope="module")
def library() -> str:
    return str(ordered_groups.built())


def ordered(rank: int, workers: int, spec: str, library: str) -> tuple[list[bytes], int]:
    with ordered_groups.standing_in(Path(library)) as made:
        return train(rank, workers, spec, "cpu", SHAPES), len(made)


@pytest.mark.parametrize("name", [*SPECS, *MORE])
def test_ordered_messages_carry_what_tagged_ones_do(name: str, pool: Pool, library: str) -> None:
    """In pieces, over several rounds; a codec whose blocks are sent again and asynchronous exchanges keep to Gloo."""
    spec, workers = (SPECS | MORE)[name], 2 if name == "dense" else 4  # a sum of more than two is of any order
    tagged = pool.run(train, workers, spec, "cpu", SHAPES)
    for rank, (wanted, (found, groups)) in enumerate(
        zip(tagged, pool.run(ordered, workers, spec, library), strict=True)
    ):
        assert [w == f for w, f in zip(wanted, found, strict=True)] == [True] * (ITERATIONS + 1), rank
        assert (groups > 0) == (name not in ("modulo", "asynchronous"))


@pytest.mark.parametrize("name", ["bytegrad", "choco", "dense", "low rank"])
def test_one_worker_has_its_group_too(name: str, pool: Pool, library: str) -> None:
    """So that with one card what many do is done, too."""
    spec = (SPECS | MORE)[name]
    ((found, groups),) = pool.run(ordered, 1, spec, library)
    assert [found] == pool.run(train, 1, spec, "cpu", SHAPES)
    assert groups > 0


def uneven(rank: int, workers: int, spec: str, library: str) -> list[bytes]:
    """Gradients come one by one, slowly on the last rank: while it computes, others have nothing else to do."""
    shapes = dict.fromkeys("abcd", (600, 600))
    with ordered_groups.standing_in(Path(library)) if library else nullcontext():
        model = model_of(shapes)
        for parameter in model.values():
            parameter.register_hook(lambda _: time.sleep(0.1 * (rank == workers - 1)))
        optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-6)
        relaxed = plan_of(spec, shapes).attach(model, optimizer, timeout=20)
        for iteration in range(3):
            optimizer.zero_grad()
            backward(model, rank, iteration)
            optimizer.step()
        relaxed.detach()
    return [p.detach().numpy().tobytes() for p in model.values()]


def test_groups_keep_their_order_where_gradients_are_ready_at_other_times(pool: Pool, library: str) -> None:
    spec = "relax gradients { compress = 8bit }"
    assert pool.run(uneven, 3, spec, library) == pool.run(uneven, 3, spec, "")


def lost(rank: int, workers: int, spec: str, library: str, blocks: bool) -> str:
    """Rank 1 stops after two iterations; the others wait for nothing, as on a device, or for their messages."""
    with ordered_groups.standing_in(Path(library), blocks=blocks):
        model = loops.mlp()
        optimizer = loops.sgd(model)
        _attached = loops.plan(spec).attach(model, optimizer, timeout=3)
        try:
            for t in range(2 if rank == 1 else 1000):
                loops.backward(model, rank, t)
                optimizer.step()
                optimizer.zero_grad()
                time.sleep(0.01)
        except ExchangeError as error:
            return str(error)
        time.sleep(6)  # alive, so that the others' connections stay
    return ""


def lost_in_the_end(rank: int, workers: int, spec: str, library: str) -> str:
    """Rank 1 leaves out the last iteration, in which the others wait for nothing, as on a device."""
    with ordered_groups.standing_in(Path(library), blocks=False):
        model = loops.mlp()
        optimizer = loops.sgd(model)
        relaxed = loops.plan(spec).attach(model, optimizer, timeout=3)
        for t in range(2 if rank == 1 else 3):
            loops.backward(model, rank, t)
            optimizer.step()
            optimizer.zero_grad()
        if rank == 1:
            time.sleep(6)
            return ""
        try:
            relaxed.detach()
        except ExchangeError as error:
            return str(error)
    return "nothing was said"


def test_a_loss_in_the_last_iteration_is_told_of(pool: Pool, library: str) -> None:
    texts = pool.run(lost_in_the_end, 3, "relax weights { compress = 8bit, topology = ring }", library)
    for rank in (0, 2):
        assert "RX0603" in texts[rank] and "iteration 2" in texts[rank], texts


def limits(rank: int, workers: int, library: str) -> list[float]:
    """How long the groups themselves wait, in multiples of what attach was told."""
    seen = []
    with ordered_groups.standing_in(Path(library)):
        make = groups_in_order.stand_in
        assert make is not None

        def watched(store: Store, rank: int, workers: int, limit: timedelta) -> dist.ProcessGroup:
            seen.append(limit.total_seconds() / 30)
            return make(store, rank, workers, limit)

        groups_in_order.stand_in = watched
        model = loops.mlp()
        loops.plan(TWO_QUEUES).attach(model, loops.sgd(model), timeout=30).detach()
    return seen


def test_our_deadline_comes_before_the_watchdogs(pool: Pool, library: str) -> None:
    """Of every group: NCCL's watchdog ends the process, without a word of what was waited for."""
    for seen in pool.run(limits, 2, library):
        assert len(seen) == 2 and min(seen) >= 2


def test_nccl_is_given_that_limit_and_a_stream_of_high_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as a torch without NCCL can show it."""
    monkeypatch.setattr(dist, "ProcessGroupNCCL", PretendedNccl, raising=False)
    monkeypatch.setattr(dist, "ProcessGroup", PretendedGroup)
    group = groups_in_order._nccl(dist.HashStore(), 0, 1, timedelta(seconds=12))
    assert isinstance(group, PretendedGroup)
    (options,) = group.options
    assert options.is_high_priority_stream and options._timeout == timedelta(seconds=12)


class PretendedNccl:
    class Options:
        def __init__(self, is_high_priority_stream: bool) -> None:
            self.is_high_priority_stream = is_high_priority_stream
            self._timeout = timedelta(minutes=10)

    def __init__(self, store: Store, rank: int, workers: int, options: Any) -> None:
        self.options = options


class PretendedGroup:
    BackendType = dist.ProcessGroup.BackendType

    def __init__(self, store: Store, rank: int, workers: int) -> None:
        self.options: list[Any] = []

    def _register_backend(self, device: torch.device, kind: Any, backend: PretendedNccl) -> None:
        assert (device.type, kind) == ("cuda", self.BackendType.NCCL)
        self.options.append(backend.options)


@pytest.mark.parametrize(
    ("spec", "goes"),
    [
        ("swarm", False),
        ("relax weights { delay = async }", False),
        ("moniqua", False),
        ("dpsgd", True),
        ("bytegrad", True),
    ],
)
def test_what_goes_from_device_to_device(spec: str, goes: bool, library: str) -> None:
    manifest = relaxc.compile(spec).manifest
    with ordered_groups.standing_in(Path(library)):
        assert over_nccl(manifest, None, torch.device("cpu")) == goes
    assert not over_nccl(manifest, None, torch.device("cpu"))


@pytest.mark.parametrize("blocks", [True, False])
@pytest.mark.parametrize("spec", ["relax weights { compress = 8bit, topology = ring }"])
def test_a_worker_that_is_lost_ends_the_run_with_where_it_was(
    spec: str, blocks: bool, pool: Pool, library: str
) -> None:
    texts = pool.run(lost, 3, spec, library, blocks)
    for rank in (0, 2):
        assert "RX0603" in texts[rank] and "iteration 2" in texts[rank] and "rank 1" in texts[rank], texts
