"""Two workers average 16 MB of weights, on loopback: a plan against the same formula in eager torch over isend and
irecv, in full precision and in 8 bits by the modulo codec.

All four alternate in one run; results are ratios of medians.
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
from on_hosts import Figure, main, run_workers
from torch import Tensor, nn

import relaxc
from relaxc.demo.hosts import unshaped_hosts

TENSORS, ELEMENTS = 4, 1 << 20
BITS, UNIT = 8, 0.001
ROUNDS = 25
FULL = "algorithm pair() { step weight += mix(weight, random_pairs) - weight }\nrelax with pair\n"
CODED = f"""algorithm pair() {{
  step
  let code = encode(weight, modulo({BITS}, unit = {UNIT}))
  weight += mix(code, random_pairs) - decode(code)
}}
relax with pair
"""
ASKED_FULL, ASKED_CODED = 0.6, 8.0
TIMEOUT = timedelta(minutes=5)
Way = Callable[[], None]


class Planned(nn.Module):
    """A plan, driven by an iteration that does nothing else. Weights stay where they are: the two workers' own."""

    def __init__(self, spec: str) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.zeros(ELEMENTS) for _ in range(TENSORS))
        self.optimizer = torch.optim.SGD(self.weights.parameters(), lr=0.0)
        self.relaxed = relaxc.compile(spec).attach(self, self.optimizer)
        self.zeros = [torch.zeros(ELEMENTS) for _ in range(TENSORS)]

    def forward(self) -> Tensor:
        loss: Tensor = Given.apply(list(self.zeros), *self.weights)  # type: ignore[no-untyped-call]
        return loss

    def prepare(self) -> None:
        """The part of an iteration that is no exchange."""
        self.zero_grad(set_to_none=True)
        self().backward()  # type: ignore[no-untyped-call]
        self.weights.zero_grad(set_to_none=True)

    def exchange(self) -> None:
        self.optimizer.step()
        self.relaxed.complete()


def eager_full(weights: list[Tensor]) -> Way:
    peer = 1 - dist.get_rank()

    def exchange() -> None:
        for weight in weights:
            theirs = torch.empty_like(weight)
            send, receive = dist.isend(weight, peer), dist.irecv(theirs, peer)
            assert send is not None and receive is not None
            receive.wait()
            send.wait()
            weight.add_(theirs).mul_(0.5)

    return exchange


def eager_coded(weights: list[Tensor]) -> Way:
    """Davies et al. 2021, as one writes it: a residue, and at the receiver the nearest number that has it."""
    peer, levels = 1 - dist.get_rank(), 2**BITS

    def decoded(residue: Tensor, near: Tensor) -> Tensor:
        away = residue.float() - near / UNIT
        return near + UNIT * (away - levels * torch.round(away / levels))

    def exchange() -> None:
        for weight in weights:
            level = torch.floor(weight / UNIT + torch.rand_like(weight))
            mine = torch.remainder(level, levels).to(torch.uint8)
            theirs = torch.empty_like(mine)
            send, receive = dist.isend(mine, peer), dist.irecv(theirs, peer)
            assert send is not None and receive is not None
            receive.wait()
            send.wait()
            weight.add_((decoded(theirs, weight) - decoded(mine, weight)) / 2)

    return exchange


def timed(way: Way) -> float:
    dist.barrier()
    start = time.perf_counter()
    way()
    return time.perf_counter() - start


def measure() -> dict[str, float]:
    planned = {"full": Planned(FULL), "coded": Planned(CODED)}
    own = [torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(n)) for n in range(TENSORS)]
    ways = {
        **{name: plan.exchange for name, plan in planned.items()},
        "eager_full": eager_full([w.clone() for w in own]), "eager_coded": eager_coded([w.clone() for w in own]),
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(ROUNDS + 2):
        for name, way in ways.items():
            if name in planned:
                planned[name].prepare()
            seconds[name].append(timed(way))
    for plan in planned.values():
        plan.relaxed.detach()
    return {name: statistics.median(taken[2:]) for name, taken in seconds.items()}


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    result = measure()
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def figures() -> list[Figure]:
    with unshaped_hosts(2) as hosts:
        taken = run_workers(hosts, __file__, [])
    full, coded = taken["full"] / taken["eager_full"], taken["eager_coded"] / taken["coded"]
    return [
        Figure("pair average, full precision, to eager torch's time", ASKED_FULL, full, True),
        Figure("pair average, modulo 8bit, times eager torch's speed", ASKED_CODED, coded),
        Figure("  modulo 8bit, times full precision's speed", 1.0, taken["full"] / taken["coded"]),
    ]


if __name__ == "__main__":
    sys.exit(main(__doc__, worker, figures))
