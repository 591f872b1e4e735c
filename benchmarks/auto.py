"""`compress = auto` against each fixed codec, and against no codec, on two hosts at several rates: one pinned core
each, real computation.

A plan for each way is compiled once, for the network that was measured in the same run, and loaded by both workers. All
ways take turns, a short window of iterations each, so that what else the machine does meets them alike; measured is the
median over rounds of one way's time to another's in the same round. What `auto` chose is printed beside it.
"""

import json
import re
import shutil
import statistics
import sys
import tempfile
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from on_hosts import Figure, main, pin_to_a_core, run_workers
from predicted import Run as Turn
from predicted import Task, measured_network, seconds_of, tasks, training

import relaxc
from relaxc.cli_compile import compile
from relaxc.demo.hosts import shaped_hosts
from relaxc.language.automatic import CODECS
from relaxc.schedule.network_file import write_network

HOSTS = 2
RATES = (100, 1000)
ROUNDS = 31
LEAD, WINDOW = 1, 3
"""Iterations of a window: the first, which begins with nothing under way, isn't timed."""
AUTO, NONE = "auto", "none"
PROGRAM = "program.relax"
SAMPLES = {"mlp": "f32[768,768]", "transformer": "i64[4,64]<64"}
TO_BEST, TO_NONE = 1.05, 1.03


def spec(codec: str) -> str:
    return f"relax gradients {{ compress = {codec} }}"


def compiled(name: str, folder: Path, network: Path) -> None:
    """A plan's folder for each way, as `relaxc compile` writes it: by rank 0, while the others wait."""
    if dist.get_rank() == 0:
        for codec in (AUTO, *CODECS):
            text = folder / f"{codec}.relax"
            text.write_text(spec(codec))
            model = ["--model", f"predicted:{name}", "--sample", SAMPLES[name]]
            fitted = ["--network", str(network), "--workers", str(HOSTS), "-o", str(folder / codec)]
            assert compile([str(text), *model, *fitted]) == 0
    dist.barrier()


def begin(way: str, folder: Path, task: Task) -> Turn:
    torch.manual_seed(0)
    model = task.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    relaxed = relaxc.load(folder).attach(model, optimizer)
    return Turn(way, training(model, optimizer, task.sample), relaxed)


def seconds_by_way(task: Task, folder: Path) -> dict[str, list[float]]:
    """Of one iteration, by round."""
    turns = [begin(way, folder / way, task) for way in (AUTO, *CODECS)]
    for round_ in range(ROUNDS + 1):
        first = round_ % len(turns)  # who follows whom changes
        for turn in turns[first:] + turns[:first]:
            turn.windows.append(seconds_of(turn, LEAD, WINDOW))
        print(f"round {round_}", flush=True)  # who says nothing for long is taken for lost
    for turn in turns:
        turn.relaxed.detach()
    return {turn.spec: turn.windows[1:] for turn in turns}  # the first fills the pipeline


def ratio(seconds: list[float], others: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(seconds, others, strict=True))


def chosen(folder: Path) -> str:
    """What a plan's exchanges say, each once."""
    text = (folder / PROGRAM).read_text()
    return "; ".join(dict.fromkeys(re.findall(r"mean\((.*)\)", text)))


def worker() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    pin_to_a_core(dist.get_rank())
    network = measured_network([spec(codec) for codec in CODECS if codec != NONE])
    found = {}
    for name, task in tasks(stand_in=False).items():
        shared: list[str | None] = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(shared)
        folder = Path(shared[0] or "")
        if dist.get_rank() == 0:
            write_network(folder / "network.json", network)
        compiled(name, folder, folder / "network.json")
        found[name] = {"seconds": seconds_by_way(task, folder), "chosen": chosen(folder / AUTO)}
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder)
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


def figures() -> list[Figure]:
    made = []
    for megabits in RATES:
        with shaped_hosts(HOSTS, megabits) as hosts:
            found = run_workers(hosts, __file__, [])
        for name, one in found.items():
            made += figures_of(f"{name} at {megabits} Mbit/s", one["seconds"], one["chosen"])
    return made


def figures_of(at: str, seconds: dict[str, list[float]], text: str) -> list[Figure]:
    to_none = {way: ratio(one, seconds[NONE]) for way, one in seconds.items()}
    best = min(CODECS, key=lambda codec: to_none[codec])
    print(f"{at}: " + "  ".join(f"{way} {found:.3f}" for way, found in to_none.items()))
    print(f"  auto chose {text}")
    return [
        Figure(f"auto to the best fixed codec ({best}), {at}", TO_BEST, ratio(seconds[AUTO], seconds[best]), True),
        Figure(f"auto to no codec, {at}", TO_NONE, to_none[AUTO], True),
    ]


if __name__ == "__main__":
    sys.exit(main(__doc__, worker, figures))
