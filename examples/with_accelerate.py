"""Hugging Face accelerate:  torchrun --nproc-per-node 2 examples/with_accelerate.py

Prepare the optimiser and the data, not the model: accelerate would wrap it in DistributedDataParallel, which exchanges
gradients itself.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from accelerate import Accelerator
from task import arguments, classifier, report, split
from torch.nn import functional
from torch.utils.data import DataLoader

import relaxc


def main() -> None:
    given = arguments()
    accelerator = Accelerator(cpu=True)
    training, held_out = split()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    relaxed = relaxc.compile(given.spec).attach(model, optimizer)
    optimizer, loader = accelerator.prepare(optimizer, DataLoader(training, batch_size=32, shuffle=True))

    done = 0
    while done < given.steps:
        for x, y in loader:
            loss = functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            done += 1
            if done == given.steps:
                break

    with relaxed.consensus():
        report(model, held_out)
    relaxed.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
