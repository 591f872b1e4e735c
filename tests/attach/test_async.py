"""Asynchronous exchanges of compiled specs at work: nobody waits, nothing of the sum is lost, all can be interrupted."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from async_by_hand import plan as by_hand
from loops import plan
from pool import Pool

READY = "relax weights { topology = ready_pairs(complete), delay = async }"
PAIRS = "relax weights { topology = random_pairs, delay = async }"
RING = "relax weights { topology = ring, delay = async }"
CODED = """algorithm coded() {
  step
  let code = encode(weight, minmax(8, rounding = stochastic))
  let moved = mix(code, random_pairs) - decode(code)
  after async { weight += moved }
}
relax with coded"""
MEAN = """algorithm center() {
  step
  let own = weight
  let middle = mean(weight)
  after async { weight += middle - own }
}
relax with center"""
MIXED = """algorithm both() {
  grad = mean(grad)
  step
  let own = weight
  let mixed = mix(weight, random_pairs)
  after async { weight += mixed - own }
}
relax with both"""


def start(rank: int, spec: Any, **settings: Any) -> Any:
    """Worker r's gradient is -(r + 1) everywhere, so the weights' sum tells how many steps each has taken."""
    import torch

    weights = torch.nn.ParameterList([torch.zeros(30), torch.zeros(5, 3)])
    optimizer = torch.optim.SGD(weights.parameters(), 1.0)
    made = spec if not isinstance(spec, str) else plan(spec)
    return weights, optimizer, made.attach(weights, optimizer, timeout=30, **settings)


def step(weights: Any, optimizer: Any, rank: int) -> None:
    weights.state_dict()  # as the forward of a model would
    optimizer.zero_grad()
    sum(-(rank + 1) * p.sum() for p in weights).backward()
    optimizer.step()


def whole(weights: Any) -> float:
    weights.state_dict()
    return float(sum(p.double().sum() for p in weights)) / sum(p.numel() for p in weights)


def wander(rank: int, workers: int, spec: str, steps: list[int]) -> Any:
    weights, optimizer, relaxed = start(rank, spec)
    means = []
    for part in range(2):
        for _ in range(steps[rank]):
            step(weights, optimizer, rank)
            time.sleep(0.001 * (1 + (rank + part) % 2))
        with relaxed.consensus():
            means.append(whole(weights))
    stats = relaxed.stats()
    relaxed.detach()
    return means, whole(weights), stats


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("spec", [READY, PAIRS, RING, MEAN], ids=["ready", "pairs", "ring", "mean"])
def test_consensus_is_the_mean_whatever_the_steps(pool: Pool, spec: str, workers: int) -> None:
    steps = [20 + 9 * rank for rank in range(workers)]
    found = pool.run(wander, workers, spec, steps)
    added = sum(steps[rank] * (rank + 1.0) for rank in range(workers)) / workers
    for means, _, stats in found:
        assert means == pytest.approx([added, 2 * added], rel=1e-5)
        assert stats["exposed_seconds"] == 0  # training has not waited
        assert stats["launched"] - stats["landed"] in (0, 1)
    assert sum(last for _, last, _ in found) / workers == pytest.approx(2 * added, rel=1e-5)
    assert min(stats["landed"] for _, _, stats in found) >= 1


def test_codes_keep_the_sum_to_rounding(pool: Pool) -> None:
    steps = [40, 60, 50]
    found = pool.run(wander, 3, CODED, steps)
    added = sum(steps[rank] * (rank + 1.0) for rank in range(3)) / 3
    for means, _, stats in found:
        assert means == pytest.approx([added, 2 * added], rel=1e-5)
        assert stats["landed"] >= 1


def test_a_gradient_that_all_wait_for_goes_along(pool: Pool) -> None:
    found = pool.run(wander, 2, MIXED, [30, 30])
    for means, _, stats in found:
        assert means == pytest.approx([30 * 1.5, 60 * 1.5])
        assert stats["landed"] >= 1
    assert sum(last for _, last, _ in found) == pytest.approx(2 * 60 * 1.5)


def race(rank: int, workers: int, spec: str, seconds: float) -> Any:
    weights, optimizer, relaxed = start(rank, spec)
    begun, steps = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        step(weights, optimizer, rank)
        time.sleep(0.05 if rank == workers - 1 else 0.01)
        steps += 1
    stats = relaxed.stats()
    relaxed.detach()
    return steps, stats


def test_a_slow_worker_slows_nobody(pool: Pool) -> None:
    """It sleeps five times as long as the others: it takes a fraction of their steps, and meets some of them."""
    found = pool.run(race, 4, READY, 3.0)
    slow, fast = found[3], found[:3]
    for steps, stats in fast:
        assert steps > 2.5 * slow[0]
        assert stats["exposed_seconds"] == 0
        assert stats["landed"] > slow[1]["landed"]
    assert slow[1]["landed"] >= 2


def bounded(rank: int, workers: int, most: int) -> Any:
    weights, optimizer, relaxed = start(rank, by_hand("mix", ["random_pairs", []], most))
    for _ in range(30):
        step(weights, optimizer, rank)
        time.sleep(0.004 * rank)
    stats = relaxed.stats()
    relaxed.detach()
    return whole(weights), stats


@pytest.mark.parametrize("most", [1, 3])
def test_the_age_of_what_lands_is_bounded(pool: Pool, most: int) -> None:
    found = pool.run(bounded, 2, most)
    assert sum(last for last, _ in found) == pytest.approx(30 * 3)
    for _, stats in found:
        assert stats["landed"] >= 20 // (most + 2)
    # the one that is through first waits for nobody; the other's last launch may wait for that one's
    assert min(stats["staleness"] for _, stats in found) <= most


def left_behind(rank: int, workers: int) -> float:
    """The seconds of 100 iterations whose launch waits for one that is through."""
    weights, optimizer, relaxed = start(rank, "relax weights { topology = random_pairs, delay = async(max = 1) }")
    begun = time.monotonic()
    for _ in range(100 if rank else 1):
        step(weights, optimizer, rank)
    seconds = time.monotonic() - begun
    relaxed.detach()
    return seconds


def test_who_is_through_is_waited_for_once(pool: Pool) -> None:
    assert pool.run(left_behind, 2)[1] < 2.5


IN_STEP = """algorithm both() {
  step
  weight = mix(weight, ring)
  every 2 {
    let own = weight
    let mixed = mix(weight, ring)
    after async(max = 2) { weight += mixed - own }
  }
}
relax with both"""


def lands_late(rank: int, workers: int) -> int:
    """What comes to rank 1 takes two iterations, and so its next launch two more than rank 0's."""
    from relaxc.attach.lanes import Lane

    weights, optimizer, relaxed = start(rank, IN_STEP)
    (lane,) = relaxed._programs.asynchrony.lanes

    def lands(t: int, most: int) -> bool:
        young = lane.flight is not None and t - lane.flight.t < 2
        lane.landing = None
        return False if young else Lane.lands(lane, t, most)

    if rank == 1:
        lane.lands = lands
    for _ in range(16):
        weights.state_dict()  # the launch is offered
        time.sleep(0.05)
        step(weights, optimizer, rank)
    landed = relaxed.stats()["landed"]
    relaxed.detach()
    return landed


def test_a_launch_behind_an_exchange_of_all_is_not_waited_for(pool: Pool) -> None:
    assert min(pool.run(lands_late, 2)) >= 2


def interrupted(rank: int, workers: int, spec: str, folder: str) -> Any:
    """Train, save, train on; then a second plan goes on from what was saved."""
    import torch
    import torch.distributed as dist

    weights, optimizer, relaxed = start(rank, spec)
    for _ in range(10 + 5 * rank):
        step(weights, optimizer, rank)
        time.sleep(0.002)
    saved = relaxed.state_dict()
    held = [p.detach().clone() for p in weights]
    at_save = whole(weights)
    for _ in range(10):
        step(weights, optimizer, rank)
    relaxed.detach()
    dist.barrier()
    weights, optimizer, relaxed = start(rank, spec)
    with torch.no_grad():
        relaxed.complete()
    weights.load_state_dict({str(n): tensor for n, tensor in enumerate(held)})
    relaxed.load_state_dict(saved)
    launched = {key: value for key, value in saved.items() if "/runs/" in key}
    after_load = whole(weights)
    for _ in range(10):
        step(weights, optimizer, rank)
        time.sleep(0.002)
    with relaxed.consensus():
        mean = whole(weights)
    stats = relaxed.stats()
    relaxed.detach()
    return at_save, after_load, mean, launched, stats


@pytest.mark.parametrize("spec", [READY, PAIRS, MEAN], ids=["ready", "pairs", "mean"])
def test_a_checkpoint_goes_on_where_it_was(pool: Pool, spec: str, tmp_path: Path) -> None:
    found = pool.run(interrupted, 3, spec, str(tmp_path))
    added = sum((10 + 5 * rank) * (rank + 1.0) for rank in range(3)) / 3
    assert sum(one[0] for one in found) / 3 == pytest.approx(added, rel=1e-5)
    for at_save, after_load, mean, launched, stats in found:
        assert after_load == pytest.approx(at_save)
        assert mean == pytest.approx(added + 10 * 2.0, rel=1e-5)
        assert launched and all(value >= 0 for value in launched.values())
        assert stats["launched"] >= 1
    if spec is MEAN:  # all are at the same number of launches; of pairs, one that is alone in a round may be ahead
        assert len({tuple(sorted((k.rpartition("/")[0], v) for k, v in one[3].items())) for one in found}) == 1


def loads(rank: int, workers: int, spec: str) -> float:
    """Other weights are loaded while exchanges are under way: nothing of the old ones comes back."""
    import torch

    weights, optimizer, relaxed = start(rank, spec)
    for _ in range(15):
        step(weights, optimizer, rank)
        time.sleep(0.002)
    weights.load_state_dict({"0": torch.full((30,), 1000.0), "1": torch.full((5, 3), 1000.0)})
    for _ in range(15):
        step(weights, optimizer, rank)
        time.sleep(0.002)
    with relaxed.consensus():
        mean = whole(weights)
    relaxed.detach()
    return mean


@pytest.mark.parametrize("spec", [READY, PAIRS], ids=["ready", "pairs"])
def test_weights_that_are_loaded_are_the_weights(pool: Pool, spec: str) -> None:
    assert pool.run(loads, 3, spec) == pytest.approx([1000 + 15 * 2.0] * 3)


def uneven(rank: int, workers: int, spec: str) -> float:
    weights, optimizer, relaxed = start(rank, spec)
    with relaxed.join():
        for _ in range(5 + 20 * rank):
            step(weights, optimizer, rank)
            time.sleep(0.001)
    with relaxed.consensus():
        mean = whole(weights)
    relaxed.detach()
    return mean


def test_join_waits_for_those_that_have_more(pool: Pool) -> None:
    added = sum((5 + 20 * rank) * (rank + 1.0) for rank in range(3)) / 3
    assert pool.run(uneven, 3, READY) == pytest.approx([added] * 3, rel=1e-5)


def recorded(rank: int, workers: int, folder: str) -> str:
    from loops import refused

    _, _, relaxed = start(rank, "relax weights { every = 2 }")

    def record() -> None:
        with relaxed.record(folder):
            pass

    said = refused("RX0626", record)
    relaxed.detach()
    return said


def test_a_plan_without_anything_asynchronous_has_nothing_to_record(pool: Pool, tmp_path: Path) -> None:
    for said in pool.run(recorded, 2, str(tmp_path)):
        assert "nothing of this plan is asynchronous" in said


def recorded_twice(rank: int, workers: int, folder: str) -> tuple[list[str], int]:
    from loops import refused

    weights, optimizer, relaxed = start(rank, PAIRS)
    said = []

    def record(path: str) -> None:
        with relaxed.record(path):
            pass

    with relaxed.record(f"{folder}/outer"):
        said.append(refused("RX0626", lambda: record(f"{folder}/inner")))
        for _ in range(20):
            step(weights, optimizer, rank)
    said.append(refused("RX0520", lambda: record("/dev/null/record")))
    relaxed.detach()
    said.append(refused("RX0626", lambda: record(f"{folder}/late")))
    lines = (Path(folder) / "outer" / f"rank{rank}.jsonl").read_text().splitlines()
    return said, sum('"launch"' in line for line in lines)


def test_there_is_one_record_at_a_time(pool: Pool, tmp_path: Path) -> None:
    for (twice, nowhere, late), launches in pool.run(recorded_twice, 2, str(tmp_path)):
        assert "being made already" in twice and "/dev/null/record" in nowhere and "detached" in late
        assert launches > 0, "the one that was refused has ended the other"


def at_most_two_late(rank: int, workers: int) -> tuple[float, float]:
    weights, optimizer, relaxed = start(rank, "relax weights { delay = async(max = 2) }")
    begun = time.monotonic()
    for _ in range(6):
        time.sleep(0.1 * rank)
        step(weights, optimizer, rank)
    took = time.monotonic() - begun
    exposed = relaxed.stats()["exposed_seconds"]
    relaxed.detach()
    return exposed, took


def test_waiting_for_what_may_not_become_older_is_exposed(pool: Pool) -> None:
    (fast, took), (slow, _) = pool.run(at_most_two_late, 2)
    assert fast > 0.5 * took > 2 * slow, (fast, took, slow)


def followed(rank: int, workers: int) -> tuple[int, set[str]]:
    """On which threads it is asked whether jobs are over, which makes their streams come behind the messages."""
    import threading

    weights, optimizer, relaxed = start(rank, RING)
    asked: set[str] = set()

    class Asking:
        def __init__(self, operations: Any) -> None:
            self.operations = operations

        def over(self, job: Any) -> Any:
            asked.add("trainer" if threading.current_thread() is threading.main_thread() else "matchmaker")
            return self.operations.over(job)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.operations, name)

    for lane in relaxed._programs.asynchrony.lanes:
        lane.operations = Asking(lane.operations)
    while relaxed.stats()["landed"] < 3:
        step(weights, optimizer, rank)
        time.sleep(0.01)
    landed = relaxed.stats()["landed"]
    relaxed.detach()
    return landed, asked


def test_what_lands_is_behind_its_messages_on_the_trainers_stream(pool: Pool) -> None:
    """The matchmaker's thread, which sees them arrive, has another stream on a GPU."""
    assert all(asked == {"trainer", "matchmaker"} for _, asked in pool.run(followed, 2))


def test_pairs_of_whoever_is_ready_are_refused_on_nccl() -> None:
    from relaxc.attach.fitting import refuse_backend
    from relaxc.errors import ExchangeError

    refuse_backend(plan(READY).manifest, "gloo")
    refuse_backend(plan(PAIRS).manifest, "nccl")
    with pytest.raises(ExchangeError, match=r"RX0625.*NCCL group"):
        refuse_backend(plan(READY).manifest, "nccl")
