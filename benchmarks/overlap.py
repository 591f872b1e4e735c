"""dpsgd on two hosts with one pinned core each, where exchanging the weights takes about as long as computing the
gradient: an iteration with both, against the longer of the two alone.

All three alternate in one run, over links shaped with ``tc tbf``; the result is a ratio of medians.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from exchange import Given
from on_hosts import Figure, main, pin_to_a_core, run_workers
from torch import nn

import relaxc
from relaxc.demo.hosts import shaped_hosts

HOSTS, MEGABITS = 2, 200
WIDTH, LAYERS = 512, 4
"""About a million parameters, 4.2 MB: 170 ms at that rate."""
ROUNDS, ITERATIONS = 9, 6
ASKED = 1.2
Iteration = Callable[[], None]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)))


def training(model: nn.Module, optimizer: torch.optim.Optimizer, batch: int) -> Iteration:
    x = torch.randn(batch, WIDTH)

    def iterate() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return iterate


def exchanging(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iteration:
    """The loop around an exchange, with a forward and a backward that take no time."""
    parameters = list(model.parameters())

    class Nothing(nn.Module):
        def forward(self) -> torch.Tensor:
            loss: torch.Tensor = Given.apply([torch.zeros_like(p) for p in parameters], *parameters)  # type: ignore[no-untyped-call]
            return loss

    nothing = Nothing()

    def iterate() -> None:
        nothing().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return iterate


def seconds(iterate: Iteration) -> float:
    """Of one iteration, the mean over a few, after one that fills the pipeline."""
    dist.barrier()
    iterate()
    start = time.perf_counter()
    for _ in range(ITERATIONS):
        iterate()
    return (time.perf_counter() - start) / ITERATIONS


def fitted_batch(wanted: float) -> int:
    """The batch whose gradient takes `wanted` seconds, the same on all workers."""
    model = network()
    taken = seconds(training(model, torch.optim.SGD(model.parameters(), 0.01), 256))
    batch = torch.tensor([256 * wanted / taken])
    dist.all_reduce(batch)
    return max(1, round(float(batch) / dist.get_world_size()))


def measure() -> dict[str, float]:
    plan = relaxc.compile("dpsgd")
    bare, empty, both = network(), network(), network()
    optimizers = [torch.optim.SGD(m.parameters(), 0.01) for m in (bare, empty, both)]
    relaxed = [plan.attach(empty, optimizers[1]), plan.attach(both, optimizers[2])]
    exchange = exchanging(empty, optimizers[1])
    batch = fitted_batch(seconds(exchange))
    ways = {
        "compute": training(bare, optimizers[0], batch),
        "exchange": exchange,
        "both": training(both, optimizers[2], batch),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS):
        for name, iterate in ways.items():
            taken[name].append(seconds(iterate))
    for attached in relaxed:
        attached.detach()
    return {name: statistics.median(found) for name, found in taken.items()}


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    pin_to_a_core(dist.get_rank())
    result = measure()
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def figures() -> list[Figure]:
    with shaped_hosts(HOSTS, MEGABITS) as hosts:
        result = run_workers(hosts, __file__, [])
    longer = max(result["compute"], result["exchange"])
    return [
        Figure("dpsgd's iteration to the longer of exchange and computation", ASKED, result["both"] / longer, True),
        Figure("  the shorter of the two to the longer", 0.8, min(result["compute"], result["exchange"]) / longer),
    ]


if __name__ == "__main__":
    sys.exit(main(__doc__, worker, figures))
