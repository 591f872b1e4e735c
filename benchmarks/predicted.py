"""Predicted against measured iteration time, for six specs on two models at 100 Mbit/s and 1 Gbit/s.

Two hosts with one pinned core each compute what a model computes. Four hosts share the cores of this machine, so there
a model sleeps for as long as it would compute: a stand-in, and labelled so. What a prediction is made of is measured in
the same run: the model's trace, the link, an all-reduce, and what each codec costs. All specs take turns, a window of
iterations each, and so does the loop without an exchange, to whose time the trace is scaled: other processes slow the
machine down by more than is asked of a prediction. Measured is the median over windows.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from on_hosts import Figure, pin_to_a_core, run_workers, show
from overlap import exchanging
from stand_in import StandIn
from torch import nn

import relaxc
from relaxc.demo.hosts import Unavailable, shaped_hosts
from relaxc.demo.model import CharTransformer
from relaxc.demo.size import Size
from relaxc.probe.fit import fit
from relaxc.probe.links import pass_round, work
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.predict import predict
from relaxc.schedule.profile import Profile
from relaxc.schedule.timeline_file import read_timeline
from relaxc.schedule.trace import trace

RATES = (100, 1000)
SPECS = ("allreduce", "bytegrad", "quickstart", "delayed_sgd", "dpsgd", "local_sgd")
ROUNDS = 5
LEAD, WINDOW = 2, 4
"""Iterations of a window: some that aren't timed, since what was under way has ended while others had their turn."""
PERIOD = {"local_sgd": 8}
"""Of these both are a period, so that each timed part has one exchange, which begins as the first part ends."""
MEDIAN, WORST = 0.15, 0.30
MESSAGES = (1 << 10, 16 << 10, 144 << 10, 1 << 20)
WIRE_SECONDS = 4.0
TIMES = 7
SUMS = (4 << 10, 256 << 10, 4 << 20)
BURST = 4 << 20
"""Bytes in a row by which a line is measured, in as many messages as that takes: the links are token buckets, through
which the first 80 KB after a rest pass at once."""
CODED = 1 << 20
"""Elements by which a codec is measured."""


@dataclass(frozen=True)
class Task:
    make: Callable[[], nn.Module]
    sample: tuple[torch.Tensor, ...]


def mlp() -> nn.Module:
    return nn.Sequential(*(nn.Linear(768, 768) for _ in range(4)))


def transformer() -> nn.Module:
    return CharTransformer(Size(width=192, layers=4))


def tasks(stand_in: bool) -> dict[str, Task]:
    if stand_in:
        return {
            "mlp": Task(lambda: StandIn([768 * 768] * 4, 0.05, 0.10), (torch.zeros(1),)),
            "transformer": Task(lambda: StandIn([192 * 192 * 4] * 12, 0.07, 0.14), (torch.zeros(1),)),
        }
    characters = torch.randint(0, 64, (4, 64))
    return {"mlp": Task(mlp, (torch.randn(768, 768),)), "transformer": Task(transformer, (characters,))}


# --- what a prediction is made of


def fitted(sizes: Sequence[int], seconds: Sequence[float]) -> Line:
    """The slope between the two largest, which noise and bursts move least, and the least that any takes beyond it."""
    each = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
    return Line(max(min(t - each * n for n, t in zip(sizes, seconds, strict=True)), 0.0), each)


def median_of(times: int, size: int, job: Callable[[int], object]) -> float:
    """Seconds of one among as many as there are in a burst, and at most 64."""
    count = max(1, min(64, BURST // size))
    found = []
    for _ in range(times):
        dist.barrier()
        job(size)  # takes what the bucket has saved up
        start = time.perf_counter()
        for _ in range(count):
            job(size)
        found.append((time.perf_counter() - start) / count)
    return statistics.median(found)


def add_up(size: int) -> None:
    dist.all_reduce(torch.zeros(size // 4))


def measured_network(specs: Sequence[str]) -> Network:
    link = fitted(MESSAGES, [median_of(TIMES, size, pass_round) for size in MESSAGES])
    sums = [median_of(TIMES, size, add_up) for size in SUMS]
    codings: dict[str, Coding] = {}
    for spec in specs:
        codings |= measured_codings(spec)
    wire = fit(work(WIRE_SECONDS)).line
    return Network(link, codings=codings, reduce=fitted(SUMS, sums), source="measured", wire=wire)


def measured_codings(spec: str) -> dict[str, Coding]:
    """What encoding and decoding an element takes, out of the profile of an exchange without a model."""
    plan = relaxc.compile(spec)
    gradients = [b.gradient for b in plan.manifest.bodies if b.gradient is not None]
    codecs = [g.exchange.codec for g in gradients if g.exchange.codec is not None]
    if not codecs:
        return {}
    model = nn.ParameterList([nn.Parameter(torch.randn(CODED, 1))])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    attached = nn.Module()
    attached.held = model
    relaxed = plan.attach(attached, optimizer)
    iterate = exchanging(attached, optimizer)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coding.json"
        iterate()
        with relaxed.profile(path, iterations=5, rank=dist.get_rank()):
            for _ in range(6):
                mark(attached)
                iterate()
        spans = read_timeline(path).timeline.spans
    relaxed.detach()
    encode, decode = (sum(s.end - s.start for s in spans if s.label == what) / CODED for what in ("encode", "decode"))
    return {codecs[0].text: Coding(Line(2e-6, encode), Line(2e-6, decode))}


def mark(model: nn.Module) -> None:
    """A forward of the attached module, which is where an iteration begins."""
    model.forward = lambda: None
    model()


# --- iterations


@dataclass
class Run:
    spec: str
    iterate: Callable[[], None]
    relaxed: Any
    windows: list[float] = field(default_factory=list)


def training(
    model: nn.Module, optimizer: torch.optim.Optimizer, sample: tuple[torch.Tensor, ...]
) -> Callable[[], None]:
    def iterate() -> None:
        model(*sample).float().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return iterate


def begin(spec: str, task: Task) -> Run:
    torch.manual_seed(0)
    model = task.make()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    relaxed = relaxc.compile(spec).attach(model, optimizer) if spec != "alone" else None
    return Run(spec, training(model, optimizer, task.sample), relaxed)


def measure(task: Task, specs: Sequence[str], rounds: int) -> dict[str, float]:
    """Seconds of an iteration by spec, and `alone`."""
    runs = [begin(spec, task) for spec in ("alone", *specs)]
    for _ in range(rounds + 1):
        for run in runs:
            period = PERIOD.get(run.spec)
            run.windows.append(seconds_of(run, period, period) if period else seconds_of(run))
    for run in runs:
        if run.relaxed is not None:
            run.relaxed.detach()
    return {run.spec: statistics.median(run.windows[1:]) for run in runs}  # the first fills the pipeline


def seconds_of(run: Run, lead: int = LEAD, count: int = WINDOW) -> float:
    """Of one iteration, the mean over a window."""
    dist.barrier()
    for _ in range(lead):
        run.iterate()
    start = time.perf_counter()
    for _ in range(count):
        run.iterate()
    return (time.perf_counter() - start) / count


def traced(task: Task) -> Profile:
    """On all workers at once, as they will compute."""
    dist.barrier()
    return trace(task.make(), task.sample, loss=lambda out: out.float().mean())


def scaled(profile: Profile, iteration: float) -> Profile:
    """With all times in proportion, so that an iteration takes so long."""
    by = iteration / profile.iteration
    times = tuple(replace(p, ready=_times(p.ready, by), needed=_times(p.needed, by)) for p in profile.parameters)
    return replace(profile, forward=profile.forward * by, backward=profile.backward * by, step=profile.step * by,
                   parameters=times)  # fmt: skip


def _times(seconds: float | None, by: float) -> float | None:
    return None if seconds is None else seconds * by


def worker(specs: list[str], rounds: int, stand_in: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(minutes=5))
    if not stand_in:
        pin_to_a_core(dist.get_rank())
    network = measured_network(specs)
    found: dict[str, Any] = {"network": [network.link.fixed, network.link.each]}
    for name, task in tasks(stand_in).items():
        profile = traced(task)
        seconds = measure(task, specs, rounds)
        plans = {spec: relaxc.compile(spec).manifest for spec in specs}
        cores_of_one = 2 if stand_in else 1
        base = scaled(profile, seconds["alone"])
        predicted = {spec: predict(plan, base, network, dist.get_world_size(), cores=cores_of_one).iteration
                     for spec, plan in plans.items()}  # fmt: skip
        found[name] = {"measured": seconds, "predicted": predicted, "traced": profile.iteration}
    if dist.get_rank() == 0:
        print(json.dumps(found), flush=True)
    dist.destroy_process_group()


# --- figures


@dataclass(frozen=True)
class Setting:
    hosts: int
    megabits: int
    stand_in: bool

    @property
    def name(self) -> str:
        what = "four hosts, a stand-in for computation" if self.stand_in else "two hosts"
        return f"{what}, {self.megabits} Mbit/s"


def tell(setting: Setting, found: dict[str, Any]) -> list[float]:
    """Print a line for each spec; the errors."""
    errors = []
    for task in ("mlp", "transformer"):
        one = found[task]
        fixed, each = found["network"]
        times = f"alone {one['measured']['alone'] * 1e3:.1f} ms, traced {one['traced'] * 1e3:.1f}"
        print(f"{setting.name} ({fixed * 1e6:.0f} us, {1e-6 / each:.1f} MB/s), {task}: {times}")
        for spec, predicted in one["predicted"].items():
            measured = one["measured"][spec]
            errors.append(abs(predicted - measured) / measured)
            print(
                f"  {spec:<12} measured {measured * 1e3:8.1f} ms  predicted {predicted * 1e3:8.1f}  {errors[-1]:5.0%}"
            )
    return errors


def figures(settings: Sequence[Setting], arguments: Sequence[str]) -> list[Figure]:
    made = []
    for setting in settings:
        more = [*arguments, *(["--stand-in"] if setting.stand_in else [])]
        with shaped_hosts(setting.hosts, setting.megabits) as hosts:
            errors = tell(setting, run_workers(hosts, __file__, more))
        made.append(Figure(f"median error, {setting.name}", MEDIAN, statistics.median(errors), True))
        made.append(Figure(f"worst error, {setting.name}", WORST, max(errors), True))
    return made


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rates", default=",".join(map(str, RATES)))
    parser.add_argument("--specs", default=",".join(SPECS))
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--hosts", default="2,4")
    parser.add_argument("--stand-in", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        worker(arguments.specs.split(","), arguments.rounds, arguments.stand_in)
        return 0
    settings = [Setting(hosts, rate, hosts == 4) for hosts in map(int, arguments.hosts.split(","))
                for rate in map(int, arguments.rates.split(","))]  # fmt: skip
    try:
        made = figures(settings, ["--specs", arguments.specs, "--rounds", str(arguments.rounds)])
    except Unavailable as error:
        sys.exit(f"hosts cannot be made here, so nothing was measured: {error}")
    return show(made, arguments.json)


if __name__ == "__main__":
    sys.exit(main())
