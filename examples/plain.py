"""A plain loop:  torchrun --nproc-per-node 2 examples/plain.py --spec dpsgd"""

from __future__ import annotations

import torch
import torch.distributed as dist
from task import arguments, batches, classifier, report, split
from torch.nn import functional

import relaxc


def main() -> None:
    given = arguments()
    dist.init_process_group("gloo")
    training, held_out = split()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    relaxed = relaxc.compile(given.spec).attach(model, optimizer)  # the loop below is unchanged

    for step, (x, y) in enumerate(batches(training, dist.get_rank())):
        if step == given.steps:
            break
        loss = functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    with relaxed.consensus():  # the average of all replicas; what is saved and evaluated
        report(model, held_out)
    relaxed.detach()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
