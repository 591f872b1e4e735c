"""A 16 MB gradient among 4 hosts: 8bit against an uncompressed all-reduce, and against the same bytes with no codec.

All three alternate in one run, over links shaped with ``tc tbf``; results are ratios of medians.
"""

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from on_hosts import Figure, run_workers, show
from torch import Tensor, nn

import relaxc
from relaxc.attach.plan import Plan
from relaxc.build.kernels import build_kernels
from relaxc.demo.counters import interface_traffic
from relaxc.demo.hosts import Unavailable, shaped_hosts

HOSTS = 4
TENSORS, ELEMENTS = 4, 1 << 20
SPEC = "relax gradients { compress = 8bit }\n"
ASKED = {1000: 3.2, 100: 3.6}
"""Gain over the uncompressed all-reduce, by Mbit/s; the bytes themselves cap it at 3.94."""
ROUNDS = {1000: 15, 100: 6}
CODEC_SHARE = 0.85
COUNTER_TOLERANCE = 1.08
TIMEOUT = timedelta(minutes=5)
Exchange = Callable[[], None]


class Given(torch.autograd.Function):
    """A loss whose backward takes no time: each parameter's gradient is the tensor that was given for it, and nobody
    else holds it, so autograd copies nothing."""

    @staticmethod
    def forward(ctx: Any, gradients: list[Tensor], *parameters: Tensor) -> Tensor:
        ctx.gradients = gradients
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> Any:
        given = tuple(ctx.gradients)
        ctx.gradients.clear()
        return (None, *given)


def all_reduce(gradients: list[Tensor]) -> Exchange:
    """4 MB at a time, all under way at once, with nothing else to do: no framework around it."""
    buffers = [gradient.clone() for gradient in gradients]

    def exchange() -> None:
        for work in [dist.all_reduce(buffer, async_op=True) for buffer in buffers]:
            work.wait()

    return exchange


class Attached:
    """A plan, driven by a backward that does nothing else."""

    def __init__(self, plan: Plan, gradients: list[Tensor]) -> None:
        self.parameters = nn.ParameterList(nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients)
        self.gradients = gradients
        self.given: list[Tensor] = []
        self.relaxed = plan.attach(self.parameters, torch.optim.SGD(self.parameters.parameters(), lr=0.0))

    @property
    def predicted_bytes(self) -> float:
        return float(self.relaxed.stats()["predicted_wire_bytes_per_iteration"])

    def prepare(self) -> None:
        self.given = [gradient.clone() for gradient in self.gradients]
        for parameter in self.parameters:
            parameter.grad = None

    def exchange(self) -> None:
        loss: Tensor = Given.apply(self.given, *self.parameters)  # type: ignore[no-untyped-call]
        loss.backward()  # type: ignore[no-untyped-call]


def without_codec(plan: Plan) -> Plan:
    """The same plan with kernels that do nothing: the same bytes, sent by the same calls."""
    gradient = plan.manifest.bodies[0].gradient
    assert gradient is not None
    symbols = sorted({kernel.symbol for kernel in gradient.exchange.kernels})
    parameters = "const relaxrt_segment*, int64_t, const relaxrt_call*, int64_t, int64_t"
    empty = [f'extern "C" void {s}({parameters}) {{}}' for s in symbols]
    return replace(plan, library=build_kernels("\n".join(['#include "relaxrt/abi.h"', *empty, ""])))


def timed(exchange: Exchange) -> float:
    """Seconds from the moment when all workers are ready."""
    dist.barrier()
    start = time.perf_counter()
    exchange()
    return time.perf_counter() - start


def measure(rounds: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    gradients = [torch.randn(ELEMENTS, generator=generator) for _ in range(TENSORS)]
    compiled = relaxc.compile(SPEC)
    plan, messages = Attached(compiled, gradients), Attached(without_codec(compiled), gradients)
    ways: dict[str, Exchange] = {
        "all_reduce": all_reduce(gradients), "plan": plan.exchange, "messages": messages.exchange,
    }  # fmt: skip
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    counted = []
    for _ in range(rounds + 1):
        for name, exchange in ways.items():
            plan.prepare()
            messages.prepare()
            dist.barrier()
            before = interface_traffic(os.environ["GLOO_SOCKET_IFNAME"]).sent
            seconds[name].append(timed(exchange))
            dist.barrier()
            if name == "plan":
                counted.append(interface_traffic(os.environ["GLOO_SOCKET_IFNAME"]).sent - before)
    result = {name: statistics.median(taken[1:]) for name, taken in seconds.items()}  # the first round warms up
    return {**result, "counted": statistics.median(counted[1:]), "predicted": plan.predicted_bytes}


def worker(rounds: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=TIMEOUT)
    result = measure(rounds)
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def figures(megabits: int, result: dict[str, float]) -> list[Figure]:
    at = f"at {megabits} Mbit/s"
    return [
        Figure(f"8bit is faster than all-reduce {at}", ASKED[megabits], result["all_reduce"] / result["plan"]),
        Figure(f"8bit, share of the same bytes' speed {at}", CODEC_SHARE, result["messages"] / result["plan"]),
        Figure(
            f"interface's bytes to predicted {at}", COUNTER_TOLERANCE, result["counted"] / result["predicted"], True
        ),
    ]


def at_rate(megabits: int) -> list[Figure]:
    with shaped_hosts(HOSTS, megabits) as hosts:
        return figures(megabits, run_workers(hosts, __file__, ["--rounds", str(ROUNDS[megabits])]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.rounds)
        return 0
    try:
        found = [figure for megabits in ASKED for figure in at_rate(megabits)]
    except Unavailable as error:
        sys.exit(f"hosts cannot be made here, so nothing was measured: {error}")
    return show(found, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
