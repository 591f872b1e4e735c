"""The script of the README: a worker that is started again rejoins. Run as `comes_back.py RANK WORKERS PORT FOLDER`, each
under a torchrun of its own."""

import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import relaxc

torch.set_num_threads(1)
rank, workers, port, folder = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])

store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
again = relaxc.rejoining(store, rank, workers)
if again is None:
    dist.init_process_group("gloo", store=store, rank=rank, world_size=workers)

model = torch.nn.Linear(50, 20)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
plan = relaxc.compile("relax weights { topology = ready_pairs(complete), delay = async }")
relaxed = plan.attach(model, optimizer, timeout=20, rejoin=again)
(folder / f"attached.{rank}.{int(again is not None)}").write_text(str(os.getpid()))
while not (folder / "end").exists():
    optimizer.zero_grad()
    model(torch.randn(8, 50)).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
with relaxed.consensus():
    (folder / f"done.{rank}").write_text(f"{model.weight.double().sum().item()!r}")
relaxed.detach()
