"""`relax gradients {}` against DistributedDataParallel(gradient_as_bucket_view=True): the price of being attached.

2 and 4 processes on loopback, a model of 108 tensors and 20.3 MB. Steps alternate in one run; the result is the median
of the ratios of neighbouring steps.
"""

import copy
import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from on_hosts import Figure, main, run_workers
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import relaxc
from relaxc.demo.hosts import unshaped_hosts

SPEC = "relax gradients {}\n"
LAYERS, WIDTH, BATCH = 54, 306, 16
PAIRS, WARM_UP = 60, 5
ASKED = 1.03
TIMEOUT = timedelta(minutes=5)
Step = Callable[[], None]


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def stepper(forward: Callable[[Tensor], Tensor], optimizer: torch.optim.Optimizer, x: Tensor) -> Step:
    def step() -> None:
        forward(x).square().mean().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step


def parallel(module: nn.Module, x: Tensor) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    return stepper(DistributedDataParallel(module, gradient_as_bucket_view=True), optimizer, x)


def attached(module: nn.Module, x: Tensor) -> Step:
    optimizer = torch.optim.SGD(module.parameters(), lr=1e-3)
    relaxc.compile(SPEC).attach(module, optimizer)
    return stepper(module, optimizer, x)


def timed(step: Step) -> float:
    """Seconds from when all workers are ready until all have ended: one worker's early end is another's late start."""
    dist.barrier()
    start = time.perf_counter()
    step()
    dist.barrier()
    return time.perf_counter() - start


def ratios() -> list[float]:
    x = torch.randn(BATCH, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    module = model()
    baseline, ours = parallel(copy.deepcopy(module), x), attached(module, x)
    found = []
    for pair in range(PAIRS + WARM_UP):
        if pair % 2:  # each goes first as often: what one leaves in the caches meets both
            there, here = timed(baseline), timed(ours)
        else:
            here, there = timed(ours), timed(baseline)
        found.append(here / there)
    return found[WARM_UP:]


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    found = ratios()
    if dist.get_rank() == 0:
        print(json.dumps({"ratio": statistics.median(found)}), flush=True)
    dist.destroy_process_group()


def with_workers(count: int) -> Figure:
    with unshaped_hosts(count) as hosts:
        ratio = run_workers(hosts, __file__, [])["ratio"]
    return Figure(f"step time to DDP's, {count} workers", ASKED, ratio, at_most=True)


def figures() -> list[Figure]:
    return [with_workers(count) for count in (2, 4)]


if __name__ == "__main__":
    sys.exit(main(__doc__, worker, figures))
