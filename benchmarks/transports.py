"""Why coded means travel as messages: the same bytes point to point, and as all-to-all with all-gather, by size.

One bucket among 4 hosts, no codec: every worker sends each peer its part and then its result. Ratio of medians,
interleaved; above 1 the messages are faster.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from on_hosts import run_workers

from relaxc.demo.hosts import Unavailable, shaped_hosts

HOSTS = 4
RATES = (1000, 100)
SIZES = (256, 4 << 10, 64 << 10, 256 << 10)
"""Bytes of code per peer."""
ROUNDS = 15


def messages(size: int) -> Callable[[], None]:
    rank, workers = dist.get_rank(), dist.get_world_size()
    peers = [(rank + d) % workers for d in range(1, workers)]
    out = torch.zeros(size, dtype=torch.uint8)
    into = {(tag, peer): torch.empty_like(out) for tag in (0, 1) for peer in peers}

    def run() -> None:
        arriving = {key: dist.irecv(into[key], key[1], tag=key[0]) for key in into}
        sent: list[Any] = []
        for tag in (0, 1):
            sent += [dist.isend(out, peer, tag=tag) for peer in peers]
            for peer in peers:
                arriving[tag, peer].wait()
        for work in sent:
            work.wait()

    return run


def collectives(size: int) -> Callable[[], None]:
    workers = dist.get_world_size()
    out, parts = (torch.zeros(size * workers, dtype=torch.uint8) for _ in range(2))
    mine = torch.zeros(size, dtype=torch.uint8)

    def run() -> None:
        dist.all_to_all_single(parts, out)
        dist.all_gather_into_tensor(out, mine)

    return run


def timed(run: Callable[[], None]) -> float:
    dist.barrier()
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    result = {}
    for size in SIZES:
        ways = (messages(size), collectives(size))
        rounds = [[timed(way) for way in ways] for _ in range(ROUNDS + 1)][1:]
        result[size] = statistics.median(r[1] for r in rounds) / statistics.median(r[0] for r in rounds)
    if dist.get_rank() == 0:
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    if parser.parse_args().worker:
        worker()
        return 0
    try:
        for rate in RATES:
            with shaped_hosts(HOSTS, rate) as hosts:
                for size, ratio in run_workers(hosts, __file__, []).items():
                    print(f"{int(size):>7} bytes a peer at {rate} Mbit/s: collectives to messages {ratio:.2f}")
    except Unavailable as error:
        sys.exit(f"hosts cannot be made here, so nothing was measured: {error}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
