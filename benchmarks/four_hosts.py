"""A character transformer of 3 M parameters on four hosts at 100 Mbit/s and 1 Gbit/s: what each way to exchange adds
to a step, and the held-out loss that it has after the same samples.

Those of a group take turns in one run, two periods of steps each, over links shaped with ``tc tbf``; each group has
the baselines that it is held against, since all ways in one process, with ten threads each, take time from each other.
What the machine does besides changes from one second to the next, so a way's turn is held against the others' of the
same round, and the median taken over rounds.
The second period is timed: what the first one left under way has its cost there, as in a run of one way alone. Exposed
time is a step minus the same step without an exchange. Each host has its share of one core, whatever the others do:
workers that wait for nobody end a turn at different times, and who had a core to himself would be twice as fast, so
who is done computes on, untimed, until all are.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import ways as ways_
from on_hosts import Figure, pin_to_a_core, run_workers, show
from ways import (
    ASYNCHRONOUS,
    BASELINES,
    EVERY_STEP,
    FITTED,
    PERIOD,
    PERIODIC,
    Make,
    Way,
    alone,
    asynchronous,
    fitted,
    spec,
)

from relaxc.demo import batches, corpus
from relaxc.demo.hosts import Unavailable, shaped_hosts
from relaxc.demo.model import CharTransformer
from relaxc.demo.settings import Settings
from relaxc.demo.worker import Data, cross_entropy, held_out_loss

HOSTS = 4
RATES = (100, 1000)
ALONE, POWER_SGD, LOCAL = "no exchange", "DDP, PowerSGD rank 4", "post-local SGD"
EVERY_STEP_BASELINES = ("DDP", "DDP, fp16 hook", POWER_SGD)


@dataclass(frozen=True)
class Group:
    """Ways that take turns in one run: the shorter their steps, the more turns."""

    ways: list[str]
    turns: int = 6


CHOCO = [name for name in (*EVERY_STEP, *FITTED) if "choco" in name]
MEANS = [name for name in (*EVERY_STEP, *FITTED) if name not in CHOCO]
GROUPS = {
    "means": Group([ALONE, *EVERY_STEP_BASELINES, *MEANS]),
    "partners": Group([ALONE, POWER_SGD, *CHOCO]),
    "periodic": Group([ALONE, LOCAL, *PERIODIC], turns=12),
    "asynchronous": Group([ALONE, *ASYNCHRONOUS], turns=24),
}
ASKED = {"every step": 0.5, "periodic": 0.5, "asynchronous": 1.05}
SLACK = 0.02
"""Held-out loss, in nats, by which a way may lie above a baseline and count as equal: other seeds differ by as much."""


@dataclass
class Crowd:
    """Workers on one machine, who tell each other through a folder, not over the links, when they are done."""

    folder: Path
    model: CharTransformer
    """Nobody's: to compute with."""
    turns: int = 0

    def fill(self, settings: Settings, data: Data) -> None:
        """Be as busy as in training until all are done with this turn."""
        (self.folder / f"{self.turns} {dist.get_rank()}").touch()
        while len(list(self.folder.glob(f"{self.turns} *"))) < dist.get_world_size():
            x, y = data.batch(settings, 0)
            cross_entropy(self.model(x), y).backward()  # type: ignore[no-untyped-call]
            self.model.zero_grad()
        self.turns += 1


@dataclass
class Run:
    name: str
    model: CharTransformer
    optimizer: torch.optim.Optimizer
    way: Way
    steps: int = 0
    seconds: list[float] = field(default_factory=list)

    def turn(self, settings: Settings, data: Data, crowd: Crowd) -> None:
        """Of the second PERIOD of steps the mean time of one, and of the workers the mean."""
        dist.barrier()
        for _ in range(PERIOD):
            self.step(settings, data)
        start = time.perf_counter()
        for _ in range(PERIOD):
            self.step(settings, data)
        mine = (time.perf_counter() - start) / PERIOD
        crowd.fill(settings, data)
        self.way.rest()
        self.seconds.append(mean_of_workers(mine))

    def step(self, settings: Settings, data: Data) -> None:
        x, y = data.batch(settings, self.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = settings.rate * settings.rate_at(self.steps)
        cross_entropy(self.way.forward(x), y).backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.way.after_step()
        self.optimizer.zero_grad()
        self.steps += 1

    def loss(self, settings: Settings, data: Data) -> float:
        with self.way.evaluating():
            return held_out_loss(self.model, data.evaluation(settings))


def mean_of_workers(mine: float) -> float:
    """Two of four that share two cores may go first, and the others be slow: only the mean says what the cores did."""
    total = torch.tensor(mine, dtype=torch.float64)
    dist.all_reduce(total)
    return total.item() / dist.get_world_size()


def begin(name: str, make: Make, settings: Settings) -> Run:
    torch.manual_seed(settings.seed)
    model = CharTransformer(settings.size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.rate, betas=(0.9, 0.95), fused=False)
    return Run(name, model, optimizer, make(model, optimizer))


def ways() -> dict[str, Make]:
    makes = ((spec, EVERY_STEP), (fitted, FITTED), (spec, PERIODIC), (asynchronous, ASYNCHRONOUS))
    return {ALONE: alone, **BASELINES, **{name: make(text) for make, of in makes for name, text in of.items()}}


@dataclass(frozen=True)
class Measured:
    """Of one step, by round, and the loss at the end."""

    seconds: list[float]
    loss: float


Found = dict[str, Measured]


def measure(data: Data, names: list[str], turns: int, folder: Path) -> Found:
    settings = Settings(steps=2 * turns * PERIOD)
    crowd = Crowd(folder, CharTransformer(settings.size))
    runs = [begin(name, make, settings) for name, make in ways().items() if name in names]
    for turn in range(turns):
        for run in runs:
            run.turn(settings, data, crowd)
            print(f"turn {turn} of {run.name}", flush=True)  # who says nothing for long is taken for lost
    found = {}
    for run in runs:
        loss = run.loss(settings, data)
        found[run.name] = Measured(run.seconds[1:], loss)
        run.way.stop()
    return found


def worker(names: list[str], turns: int, folder: Path) -> None:
    pin_to_a_core(int(os.environ["RANK"]))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    train, held_out = map(batches.as_tensor, corpus.standard_library())
    found = measure(Data(train, held_out, dist.get_rank(), dist.get_world_size()), names, turns, folder)
    if dist.get_rank() == 0:
        print(json.dumps({name: asdict(one) for name, one in found.items()}), flush=True)
    dist.destroy_process_group()


def rounds(found: Found, name: str, other: str) -> list[tuple[float, float]]:
    return list(zip(found[name].seconds, found[other].seconds, strict=True))


def exposed(found: Found, name: str) -> float:
    """Seconds of a step, 0 or more."""
    return max(statistics.median(one - alone for one, alone in rounds(found, name, ALONE)), 0.0)


def step(found: Found, name: str) -> float:
    """To the step without an exchange."""
    return statistics.median(one / alone for one, alone in rounds(found, name, ALONE))


def relative(found: Found, name: str, baseline: str) -> float:
    return exposed(found, name) / exposed(found, baseline)


def every_step(groups: Sequence[Found], baseline: str, at: str) -> Figure:
    """The best spec, each beside the baseline of its own group, that trains as well after as many samples."""
    ratios = [
        (relative(found, name, baseline), name)
        for found in groups
        for name in (*EVERY_STEP, *FITTED)
        if name in found and baseline in found and found[name].loss <= found[baseline].loss + SLACK
    ]
    ratio, name = min(ratios, default=(math.inf, "no spec trains as well"))
    return Figure(f"{name}: exposed time to {baseline}'s {at}", ASKED["every step"], ratio, True)


def figures(megabits: int, groups: Sequence[Found]) -> list[Figure]:
    at = f"at {megabits} Mbit/s"
    measured = [baseline for baseline in EVERY_STEP_BASELINES if any(baseline in found for found in groups)]
    made = [every_step(groups, baseline, at) for baseline in measured]
    for found in groups:
        made += of_group(found, at)
    return made


def of_group(found: Found, at: str) -> list[Figure]:
    made = [
        Figure(f"{n}: exposed time to post-local SGD's {at}", ASKED["periodic"], relative(found, n, LOCAL), True)
        for n in PERIODIC
        if n in found and LOCAL in found
    ]
    made += [
        Figure(f"{n}: step to one without an exchange {at}", ASKED["asynchronous"],
               step(found, n), True)
        for n in ASYNCHRONOUS
        if n in found
    ]  # fmt: skip
    return made


def tell(megabits: int, found: Found) -> None:
    base = statistics.median(found[ALONE].seconds)
    print(f"{megabits:5} Mbit/s  a step without an exchange takes {1000 * base:.0f} ms")
    for name, one in found.items():
        share = exposed(found, name) / base
        print(f"{megabits:5} Mbit/s  {name:<30} exposed {share:6.2f} of the step alone   held-out loss {one.loss:.3f}")


def on_hosts(megabits: int, names: list[str], turns: int) -> Found:
    with shaped_hosts(HOSTS, megabits) as hosts, tempfile.TemporaryDirectory() as folder:
        settings = ["--turns", str(turns), "--megabits", str(megabits), "--folder", folder]
        found = run_workers(hosts, __file__, ["--ways", ";".join(names), *settings])
        return {name: Measured(**one) for name, one in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--groups", default=",".join(GROUPS))
    parser.add_argument(
        "--ways", default="", help="one group of your own: names with ; between, one of them no exchange"
    )
    parser.add_argument("--turns", type=int, help="of 16 steps each, 2 or more; the first is not counted")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--megabits", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        ways_.megabits = arguments.megabits
        worker(arguments.ways.split(";"), arguments.turns, arguments.folder)
        return 0
    if arguments.turns is not None and arguments.turns < 2:
        parser.error("--turns: the first is not counted, so it takes 2 at least")
    own = [Group(arguments.ways.split(";"))] if arguments.ways else []
    groups = own or [GROUPS[name] for name in arguments.groups.split(",")]
    made: list[Figure] = []
    try:
        for megabits in map(int, arguments.rates.split(",")):
            found = [on_hosts(megabits, group.ways, arguments.turns or group.turns) for group in groups]
            if not arguments.json:
                for one in found:
                    tell(megabits, one)
            made += figures(megabits, found)
    except Unavailable as error:
        sys.exit(f"hosts cannot be made here, so nothing was measured: {error}")
    return show(made, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
