"""A worker under torchrun: the first attempt dies in the middle of an exchange, or waits for ever where told to."""

import json
import os
import signal
import sys
import time
from pathlib import Path

import msgspec
import torch
import torch.distributed as dist
from torch import nn

import relaxc

torch.set_num_threads(1)
what, folder = sys.argv[1], Path(sys.argv[2])
attempt, rank = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["RANK"])
# A part of the store for each attempt: Gloo groups of torch 2.13 meet the addresses of the attempt before otherwise.
shared = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
store = dist.PrefixStore(f"attempt{attempt}", shared)
dist.init_process_group("gloo", store=store, rank=rank, world_size=int(os.environ["WORLD_SIZE"]))
torch.manual_seed(rank)
model = nn.Sequential(*(nn.Linear(50, 50) for _ in range(4)))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
plan = relaxc.compile("relax gradients { compress = 8bit, feedback = both }")
manifest = msgspec.structs.replace(plan.manifest, first_bucket_bytes=2000, bucket_bytes=8000, coded_bucket_bytes=8000)
plan = type(plan)(manifest, plan.library, plan.runtime)
relaxed = plan.attach(model, optimizer, timeout=60 if what == "wait" else 4)
(folder / f"attached.{attempt}.{rank}").write_text(str(os.getpid()))
for number in range(8):
    if number == 4 and rank == 1 and what == "wait":
        (folder / "waiting").touch()
        time.sleep(60)
    if number == 4 and rank == 1 and attempt == 0:
        model[1].weight.register_hook(lambda _grad: os.kill(os.getpid(), signal.SIGKILL))
    optimizer.zero_grad()
    (model(torch.full((4, 50), 0.1 * (rank + 1))) ** 2).mean().backward()
    optimizer.step()
total = sum(float(p.detach().double().sum()) for p in model.parameters())
(folder / f"done.{attempt}.{rank}").write_text(json.dumps({"iterations": relaxed.stats()["iterations"], "sum": total}))
relaxed.detach()
dist.destroy_process_group()
