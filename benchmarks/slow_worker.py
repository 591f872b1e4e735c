"""One of four workers takes five times as long for a step: what that does to the others.

Under `ready_pairs` their steps go on as before; under DistributedDataParallel all take as long as the slow one. A step
sleeps, as a loop does that waits for an accelerator: the cores of one machine are shared, and the slow worker must not
give the others more of them. All ways alternate in one run; figures are ratios of medians.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from on_hosts import Figure, main, run_workers
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import relaxc
from relaxc.demo.hosts import unshaped_hosts

WORKERS, SLOWER = 4, 5
SPEC = "relax weights { topology = ready_pairs(complete), delay = async }"
STEP, WINDOW, ROUNDS = 0.02, 1.5, 7
"""Seconds of a step, seconds in which steps are counted, and how often."""
Iteration = Callable[[], None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))


def training(model: nn.Module, optimizer: torch.optim.Optimizer, pause: float) -> Iteration:
    x = torch.randn(16, 256)

    def iterate() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        time.sleep(pause)
        optimizer.step()

    return iterate


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), 0.01)


def attached(pause: float) -> tuple[Iteration, relaxc.Relaxed]:
    model = network()
    optimizer = sgd(model)
    relaxed = relaxc.compile(SPEC).attach(model, optimizer)
    return training(model, optimizer, pause), relaxed


def with_ddp(pause: float) -> Iteration:
    model = DistributedDataParallel(network())
    return training(model, sgd(model), pause)


def rate(iterate: Iteration) -> float:
    """Steps a second of this worker, which goes at its own pace."""
    dist.barrier()
    start, steps = time.perf_counter(), 0
    while (taken := time.perf_counter() - start) < WINDOW:
        iterate()
        steps += 1
    return steps / taken


def rate_together(iterate: Iteration, steps: int) -> float:
    """The same where all workers must take the same number of steps."""
    dist.barrier()
    start = time.perf_counter()
    for _ in range(steps):
        iterate()
    return steps / (time.perf_counter() - start)


def measure() -> dict[str, float]:
    slow = SLOWER * STEP if dist.get_rank() == WORKERS - 1 else STEP
    even, relaxed = attached(STEP)
    uneven, relaxed_uneven = attached(slow)
    ddp = [with_ddp(STEP), with_ddp(slow)]
    ways: dict[str, Callable[[], float]] = {
        "even": lambda: rate(even),
        "uneven": lambda: rate(uneven),
        "ddp even": lambda: rate_together(ddp[0], int(WINDOW / STEP)),
        "ddp uneven": lambda: rate_together(ddp[1], int(WINDOW / STEP / SLOWER)),
    }
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, way in ways.items():
            found[name].append(way())
    stats = relaxed_uneven.stats()
    relaxed.detach()
    relaxed_uneven.detach()
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    return {**medians, "landed": float(stats["landed"]), "waited": float(stats["exposed_seconds"])}


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    everyone: list[dict[str, float]] = [{} for _ in range(WORKERS)]
    dist.all_gather_object(everyone, measure())
    if dist.get_rank() == 0:
        print(json.dumps({"by rank": everyone}), flush=True)
    dist.destroy_process_group()


def figures() -> list[Figure]:
    with unshaped_hosts(WORKERS) as hosts:
        *fast, slow = run_workers(hosts, __file__, [])["by rank"]
    kept = min(one["uneven"] / one["even"] for one in fast)
    ddp = statistics.median(one["ddp uneven"] / one["ddp even"] for one in fast)
    landed = slow["landed"] / statistics.mean(one["landed"] for one in fast)
    return [
        Figure("ready_pairs: step rate beside a slow worker to that without", 0.95, kept),
        Figure("  DistributedDataParallel's", 0.0, ddp),
        Figure("  exchanges of the slow worker to those of the others", 0.0, landed),
        Figure("seconds that a training loop has waited", 0.0, max(o["waited"] for o in (*fast, slow)), True),
    ]


if __name__ == "__main__":
    sys.exit(main(__doc__, worker, figures))
