"""Gradient accumulation, mixed precision with a loss scale, and clipping:

torchrun --nproc-per-node 2 examples/accumulate_amp_clip.py
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
import torch.distributed as dist
from task import arguments, batches, classifier, report, split
from torch.nn import functional

import relaxc

MICRO_BATCHES = 4


def main() -> None:
    given = arguments()
    dist.init_process_group("gloo")
    training, held_out = split()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu")
    relaxed = relaxc.compile(given.spec).attach(model, optimizer, scaler=scaler)  # residuals follow the loss scale

    source = batches(training, dist.get_rank())
    for _ in range(given.steps):
        for micro in range(MICRO_BATCHES):
            x, y = next(source)
            last = micro == MICRO_BATCHES - 1
            with nullcontext() if last else relaxed.no_sync():  # one exchange for the sum of all micro-batches
                with torch.autocast("cpu", dtype=torch.float16):
                    loss = functional.cross_entropy(model(x).float(), y) / MICRO_BATCHES
                scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # sees the mean, as with DistributedDataParallel
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    with relaxed.consensus():
        report(model, held_out)
    relaxed.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
