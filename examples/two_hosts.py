"""Two hosts. On each of them, with the same address of the first, a port that is free there, and on a host with several
interfaces the one that leads to the other host:

    export GLOO_SOCKET_IFNAME=eth0
    torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-id relaxed --rdzv-endpoint FIRST:29500 \\
        examples/two_hosts.py

Compile on one host and copy the folder (`relaxc compile SPEC -o plan --carry-runtime`), or let each host compile: a
plan's hash is compared at attach, so that workers with different specs are told so.
"""

from __future__ import annotations

import os
import socket

import torch
import torch.distributed as dist
from task import arguments, batches, classifier, report, split
from torch.nn import functional

import relaxc


def main() -> None:
    given = arguments()
    dist.init_process_group("gloo")
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} on {socket.gethostname()}")
    training, held_out = split()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    relaxed = relaxc.compile(given.spec).attach(model, optimizer, timeout=float(os.environ.get("TIMEOUT", "60")))

    source = batches(training, dist.get_rank())
    for _ in range(given.steps):
        x, y = next(source)
        functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()

    stats = relaxed.stats()
    with relaxed.consensus():
        report(model, held_out)
    if dist.get_rank() == 0:
        print(f"{stats['bytes_sent'] / given.steps / 1e3:.0f} kB sent a step")
    relaxed.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
