"""What a worker of a failure test does. Each leaves a log: lines of JSON with the time (of the one monotonic clock)."""

import atexit
import contextlib
import gc
import itertools
import json
import multiprocessing
import os
import signal
import sys
import time
import traceback
import warnings
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
warnings.filterwarnings("ignore", message=".*fork.*", category=DeprecationWarning)  # forking is what is tested

import msgspec  # noqa: E402
import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch import nn  # noqa: E402

import relaxc  # noqa: E402
from relaxc.build.runtime import load_runtime  # noqa: E402

torch.set_num_threads(1)
load_runtime()

SPECS = {
    "none": "relax gradients { }",
    "all": "relax gradients { compress = 8bit, feedback = both }",
    "ring": "relax gradients { compress = 4bit, route = ring }",
    "late": "relax gradients { compress = 8bit, delay = 1 }",
    "mix": "relax weights { topology = ring }",
    "ready": "relax weights { topology = ready_pairs(complete), delay = async }",
    "pairs": "relax weights { topology = random_pairs, delay = async }",
    "ring weights": "relax weights { topology = ring, delay = async }",
    "8 bits": (Path(__file__).parents[3] / "specs" / "swarm_8bit.relax").read_text(),
    "adpsgd": (Path(__file__).parents[3] / "specs" / "adpsgd.relax").read_text(),
    "average": """algorithm average {
  step
  let own = weight
  let center = mean(weight)
  after async { weight += center - own }
}
relax with average""",
}
PLANS = {name: relaxc.compile(text) for name, text in SPECS.items()}


class Log:
    def __init__(self, path):
        self.path = Path(path)

    def __call__(self, event, **more):
        with self.path.open("a") as file:
            file.write(json.dumps({"event": event, "time": time.monotonic(), **more}) + "\n")


def make_plan(job):
    """With small buckets, so that a small model has several."""
    plan = PLANS[job["spec"]]
    manifest = msgspec.structs.replace(
        plan.manifest, first_bucket_bytes=2000, bucket_bytes=8000, coded_bucket_bytes=8000
    )
    return type(plan)(manifest, plan.library, plan.runtime)


def make_model():
    torch.manual_seed(7)
    return nn.Sequential(*(nn.Linear(50, 50) for _ in range(5)))


def join(job):
    if job["workers"] > 1 or job.get("store"):
        dist.init_process_group("gloo", init_method=job["store"], rank=job["rank"], world_size=job["workers"])


def run(job):
    """As a program would, with a log; `brisk` leaves out the interpreter's own end, which takes a second of computing."""
    log = Log(job["log"])
    try:
        globals()[job["behaviour"]](job, log)
        log("end")
    except BaseException as error:
        log("error", kind=type(error).__name__, code=getattr(error, "code", ""), text=str(error))
        if not job.get("brisk"):
            raise
        traceback.print_exc()
        end(1)
    if job.get("brisk"):
        end(0)


def end(status):
    atexit._run_exitfuncs()
    sys.stderr.flush()
    os._exit(status)


def warm_up():
    """What torch imports at first use, once for all workers."""
    model = make_model()
    torch.optim.SGD(model.parameters(), lr=0.01).zero_grad()
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    torch.optim.SGD(model.parameters(), lr=0.01).step()


def step(model, optimizer, rank):
    optimizer.zero_grad()
    x = torch.full((4, 50), 0.1 * (rank + 1))
    (model(x) ** 2).mean().backward()
    optimizer.step()


def train(job, log):
    """`steps` iterations; in iteration `at` this worker does `act`, before or in the middle of backward."""
    join(job)
    if "late" in job:
        time.sleep(job["late"])
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with contextlib.ExitStack() as stack:
        if job.get("absent"):
            time.sleep(job["absent"])
            return
        log("attaching")
        relaxed = make_plan(job).attach(model, optimizer, timeout=job["timeout"])
        log("attached")
        if job.get("detach"):
            stack.callback(relaxed.detach)
        for number in range(job["steps"]):
            if number == job.get("at"):
                arrange(job, log, model, relaxed)
            log("step", number=number)
            step(model, optimizer, job["rank"])
            time.sleep(0.02)
        if job.get("consensus"):
            with relaxed.consensus():
                pass
    if job.get("linger"):
        time.sleep(job["linger"])


def arrange(job, log, model, relaxed):
    before = relaxed.stats()["bytes_sent"]

    def act(_grad=None):
        while job.get("inside") and relaxed.stats()["bytes_sent"] == before:
            time.sleep(0.001)  # until something of this iteration has left: before that it could be taken back
        log("act")
        ACTS[job["act"]](job)

    if job.get("inside"):
        model[2].weight.register_hook(act)
    else:
        act()


def die(_job):
    os.kill(os.getpid(), signal.SIGKILL)


def stop(_job):
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.5)  # another thread may be the one that takes the signal: until it does, this one would run on


def fault(_job):
    raise ValueError("a mistake in the user's code")


def compute(job):
    time.sleep(job["seconds"])


def spin(job):
    end = time.monotonic() + job["seconds"]
    while time.monotonic() < end:
        sum(range(1000))


ACTS = {"die": die, "stop": stop, "fault": fault, "compute": compute, "spin": spin}


# --- asynchronous exchanges


def wander(job, log):
    """Trains at its own pace for `seconds`; after `at` of them this worker does `act`, when its partners have begun an
    exchange with it."""
    join(job)
    model = nn.Linear(1000, 500)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    relaxed = PLANS[job["spec"]].attach(model, optimizer, timeout=job["timeout"])
    lane, store = relaxed._programs.asynchrony.lanes[0], dist.distributed_c10d._get_default_store()
    begun, number = time.monotonic(), 0
    start = lane._start

    def start_or_act(flight, transfer, meeting, tag):
        if "act" in job and time.monotonic() - begun > job["at"]:
            while not store.check([f"begun/{tag}/{peer}" for peer, _ in flight.peers]):
                time.sleep(0.01)
            log("act")
            ACTS[job.pop("act")](job)
        started = start(flight, transfer, meeting, tag)
        store.set(f"begun/{tag}/{job['rank']}", "")
        return started

    lane._start = start_or_act
    while time.monotonic() - begun < job["seconds"]:
        optimizer.zero_grad()
        model(torch.ones(2, 1000)).mean().backward()
        optimizer.step()
        number += 1
        log("step", number=number, **relaxed.stats())
        time.sleep(0.005)
    with relaxed.consensus():
        log("consensus", weight=model.bias[0].item(), workers=relaxed._consensus.groups.workers)
    relaxed.detach()
    log("stats", **relaxed.stats())


def return_(job, log):
    """Trains at its own pace until a file appears. A worker that is started `again` finds the run and rejoins, as a
    script would; amid that it may `die` or `pause` in the method `amid` of Newcomer."""
    rejoin = None
    if job.get("again"):
        host, port = job["store"].removeprefix("tcp://").split(":")
        store = dist.TCPStore(host, int(port), is_master=False, wait_for_workers=False)
        rejoin = relaxc.rejoining(store, job["rank"], job["workers"])
        arrange_amid(job, log)
    else:
        join(job)
    torch.manual_seed(job["rank"] + 10 * bool(rejoin))
    model = nn.Sequential(nn.Linear(200, job.get("width", 300)), nn.BatchNorm1d(job.get("width", 300)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    relaxed = PLANS[job["spec"]].attach(model, optimizer, timeout=job["timeout"], rejoin=rejoin)
    momentum = sum(float(s["momentum_buffer"].abs().sum()) for s in optimizer.state.values() if s)
    log("attached", seen=model[1].num_batches_tracked.item(), momentum=momentum)
    number, rests = 0, [t for t in job.get("rests", []) if t > time.monotonic()]
    while not Path(job["until"]).exists():
        optimizer.zero_grad()
        model(torch.randn(8, 200)).square().mean().backward()
        optimizer.step()
        number += 1
        log("step", number=number, **relaxed.stats())
        time.sleep(0.01)
        if rests and time.monotonic() > rests[0]:
            with relaxed.consensus():
                log("rest", at=rests.pop(0), weight=model[0].weight.double().sum().item(),
                    workers=relaxed._consensus.groups.workers)  # fmt: skip
    with relaxed.consensus():
        log("consensus", weight=model[0].weight.double().sum().item(), workers=relaxed._consensus.groups.workers)
    state = relaxed.state_dict()
    relaxed.load_state_dict(state)
    before = relaxed.stats()["landed"]
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.randn(8, 200)).square().mean().backward()
        optimizer.step()
        time.sleep(0.01)
    with relaxed.consensus():
        log("loaded", landed=relaxed.stats()["landed"] - before, weight=model[0].weight.double().sum().item())
    relaxed.detach()
    log("stats", **relaxed.stats())


def arrange_amid(job, log):
    from relaxc.attach.newcomer import Newcomer

    if "amid" not in job:
        return
    method = getattr(Newcomer, job["amid"])

    def act(self, *given):
        log("amid")
        time.sleep(job.get("pause", 0))
        if job.get("die"):
            die(job)
        return method(self, *given)

    setattr(Newcomer, job["amid"], act)


# --- ends and forks, in one worker or two


def leave(job, log):
    """Train a little, and end in the way that `way` says."""
    join(job)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    plan = make_plan(job)
    relaxed = plan.attach(model, optimizer, timeout=20)
    for _ in range(3):
        step(model, optimizer, job["rank"])
    if job["way"] == "destroy, detach":
        dist.destroy_process_group()
        relaxed.detach()
    elif job["way"] == "detach, destroy":
        relaxed.detach()
        dist.destroy_process_group()
    elif job["way"] == "destroy":
        dist.destroy_process_group()
        step(model, optimizer, job["rank"])
    elif job["way"] == "drop":
        del relaxed, model, optimizer
        gc.collect()


def drop_result(job, log):
    """Nobody keeps what attach returned, nor the optimiser; gradients are exchanged all the same."""
    join(job)
    model = make_model()
    make_plan(job).attach(model, torch.optim.SGD(model.parameters(), lr=0.01), timeout=20)
    gc.collect()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(3):
        step(model, optimizer, job["rank"])
    log("weights", sum=sum(float(p.detach().double().sum()) for p in model.parameters()))


def fork(job, log):
    """Children of a training process: a data loader's, one of multiprocessing's, one that drops everything. (The end of the
    interpreter in a forked child, as by sys.exit, hangs or crashes where torch has a Gloo group, with relaxc or without.)
    """
    join(job)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    relaxed = make_plan(job).attach(model, optimizer, timeout=20)
    step(model, optimizer, job["rank"])
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=2, num_workers=2, multiprocessing_context="fork")
    log("loaded", values=sorted(float(v) for (batch,) in loader for v in batch))
    pid = os.fork()
    if pid == 0:
        relaxed.detach()
        del relaxed, model, optimizer
        gc.collect()
        os._exit(7)
    log("child", status=wait_for(pid, 15))
    child = multiprocessing.get_context("fork").Process(target=sys.exit, args=(7,))
    child.start()
    child.join(15)
    log("child", status=child.exitcode)
    step(model, optimizer, job["rank"])
    relaxed.detach()


def wait_for(pid, seconds):
    """The child's exit status; "hangs" (and its end) where there is none in time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


def again(job, log):
    """Attach and detach in one process, on one store and on a second one after it."""
    for store in job["stores"]:
        join({**job, "store": store})
        for _ in range(job["times"]):
            model = make_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            relaxed = make_plan(job).attach(model, optimizer, timeout=20)
            step(model, optimizer, job["rank"])
            relaxed.detach()
        dist.destroy_process_group()
    names = [(task / "comm").read_text().strip() for task in Path("/proc/self/task").iterdir()]
    log("threads", ours=[name for name in names if "relaxc" in name])


def overlapping(job, log):
    """Groups {0, 1}, {1, 2} and all three, a model each, at work in turn."""
    join(job)
    members = [[0, 1], [1, 2], [0, 1, 2]]
    groups = [dist.new_group(m) for m in members]
    attached = []
    for ranks, group in zip(members, groups, strict=True):
        if job["rank"] in ranks:
            model = make_model()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            attached.append((ranks, model, optimizer, make_plan(job).attach(model, optimizer, group=group, timeout=20)))
    for _ in range(3):
        for _ranks, model, optimizer, _relaxed in attached:
            step(model, optimizer, job["rank"])
    sums = {
        str(ranks): float(sum(p.detach().double().sum() for p in model.parameters())) for ranks, model, *_ in attached
    }
    for *_, relaxed in attached:
        relaxed.detach()
    log("sums", sums=sums)


def other_timeout(job, log):
    """The user's group waits a second at most, the plan's ten: a worker that is three late is no failure."""
    from datetime import timedelta

    dist.init_process_group(
        "gloo", init_method=job["store"], rank=job["rank"], world_size=job["workers"], timeout=timedelta(seconds=1)
    )
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    make_plan(job).attach(model, optimizer, timeout=10)
    for number in itertools.count():
        if job["rank"] == 1 and number == 1:
            time.sleep(3)
        step(model, optimizer, job["rank"])
        if number == 2:
            return
