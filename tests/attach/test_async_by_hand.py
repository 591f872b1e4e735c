"""Asynchronous exchanges at work, with a plan made by hand: launches, landings, drains, counts."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path
from typing import Any

import pytest
from async_by_hand import plan
from pool import Pool

PAIRS = ["random_pairs", []]
READY = ["ready_pairs", [["complete", []]]]
RING = ["ring", []]


def model(rank: int) -> Any:
    import torch

    return torch.nn.ParameterList([torch.zeros(30), torch.zeros(5, 3)])


def step(weights: Any, optimizer: Any, rank: int) -> None:
    """The gradient is constant: -(rank + 1) in each element, so that the weights' sum tells the steps."""
    import torch

    for p in weights:
        p.grad = None
    loss = sum(-(rank + 1) * p.sum() for p in weights)
    loss.backward()
    optimizer.step()
    assert all(torch.isfinite(p).all() for p in weights)


def train(rank: int, workers: int, kind: str, topology: Any, steps: list[int], pause: list[float], path: str) -> Any:
    import torch

    weights = model(rank)
    optimizer = torch.optim.SGD(weights.parameters(), 1.0)
    relaxed = plan(kind, topology).attach(weights, optimizer, timeout=30)
    with relaxed.record(path):
        for _ in range(steps[rank]):
            step(weights, optimizer, rank)
            time.sleep(pause[rank])
        with relaxed.consensus():
            mean = [p.detach().clone() for p in weights]
        relaxed.detach()
    return mean, [p.detach().clone() for p in weights], relaxed.stats()


@pytest.mark.parametrize(("kind", "topology"), [("mix", PAIRS), ("mix", READY), ("mix", RING)])
@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_the_sum_of_the_workers_is_kept(pool: Pool, tmp_path: Path, kind: str, topology: Any, workers: int) -> None:
    """Whatever has landed where, consensus is the mean of what the workers have added, however many steps each took."""
    import torch

    steps = [40 + 17 * rank for rank in range(workers)]
    pause = [0.002 + 0.004 * (rank % 2) for rank in range(workers)]
    found = pool.run(train, workers, kind, topology, steps, pause, str(tmp_path))
    added = sum(steps[rank] * (rank + 1.0) for rank in range(workers))
    for mean, _, _ in found:
        for tensor in mean:
            torch.testing.assert_close(tensor, torch.full_like(tensor, added / workers))
    total = sum(weights[0][0].item() for _, weights, _ in found)
    assert total == pytest.approx(added)
    launched = [stats["launched"] for _, _, stats in found]
    landed = [stats["landed"] for _, _, stats in found]
    assert all(0 <= a - b <= 1 for a, b in zip(launched, landed, strict=True))
    assert max(landed) >= 1
    assert all(stats["dropped"] == 0 for _, _, stats in found)


def test_the_record_tells_launches_and_landings_in_turn(pool: Pool, tmp_path: Path) -> None:
    pool.run(train, 3, "mix", READY, [20, 20, 20], [0.003, 0.0, 0.006], str(tmp_path))
    met = {}
    for rank in range(3):
        text = (tmp_path / f"rank{rank}.jsonl").read_text()
        cohort, *lines = [json.loads(line) for line in text.splitlines()]
        assert cohort["parameters"] == [0, 1]
        events = [line["event"] for line in lines]
        assert set(events) <= {"launch", "land", "settle"}
        assert all((a == "launch") != (b == "launch") for a, b in itertools.pairwise(events))  # in turn
        rounds = [line["round"] for line in lines if line["event"] == "launch"]
        assert rounds == list(range(len(rounds)))
        for line in lines:
            if line["event"] != "launch":
                met[rank, line["round"]] = tuple(line["peers"][0])
    assert met
    assert all(met[peer] == key for key, peer in met.items())  # both sides of each pair have landed
