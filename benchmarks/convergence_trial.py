"""One training of the convergence runs."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from convergence_settings import ITERATIONS, Settings
from digits_task import PARAMETERS, Array, Batches, Descent, gradient, held_out, start

from relaxc import pipeline
from relaxc.api import _source
from relaxc.program.asynchronous import Workers
from relaxc.program.checks.judged import judge
from relaxc.program.flights import Prompt
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import After, Program, flattened
from relaxc.topology.kinds import rows

ROUNDS = 4
"""Of a topology that stand for all of them."""
LOOKS = 4
BETWEEN = 10
"""The outcome is the mean over the last looks, so many iterations apart: one alone says what the last batch was."""


@dataclass(frozen=True)
class Outcome:
    """Of the average of the workers' weights, on held-out samples; `apart` is the farthest that a weight is from it."""

    loss: float
    accuracy: float
    apart: float


@cache
def program_of(text: str) -> Program:
    return pipeline.to_typed(pipeline.to_spec(_source(text), {})).program


def told(text: str, workers: int) -> str:
    """What a result follows from: the program, what its codecs do, and who meets whom with which weight."""
    program = program_of(text)
    topologies = dict.fromkeys(e.topology for b in program.bodies for e in judge(b).exchanges() if e.topology)
    met = [rows(topology, workers, round, 0) for topology in topologies for round in range(ROUNDS)]
    return f"{program}{met}"


def run(settings: Settings, spec: str, split: str, workers: int, seed: int, processes: bool) -> Outcome:
    text = settings.text or spec
    if processes:
        return in_processes(text, settings, split, workers, seed)
    return simulated(text, settings, split, workers, seed)


def simulated(text: str, settings: Settings, split: str, workers: int, seed: int) -> Outcome:
    rule = Descent(settings.rate, settings.momentum, ITERATIONS)
    batches = Batches(split, workers, seed)
    if any(isinstance(s, After) and s.asynchronous for b in program_of(text).bodies for s in flattened(b.statements)):
        return at_their_own_pace(text, rule, batches)
    return in_step(text, rule, batches)


def in_step(text: str, rule: Descent, batches: Batches) -> Outcome:
    workers, seed = batches.workers, batches.seed
    first = [w.ravel() for w in start(seed)]
    world = Interpreter(program_of(text), PARAMETERS, workers, seed, first, rule)
    looks = []
    for iteration in range(ITERATIONS):
        rule.done = [iteration]
        weights = world.weights
        world.iterate([gradient(weights[w], *batches.next(w)) for w in range(workers)])
        if looked(iteration):
            looks.append(outcome(world.weights))
    return averaged(looks)


def at_their_own_pace(text: str, rule: Descent, batches: Batches) -> Outcome:
    """Workers whose iterations take between 0.7 and 1.3 of the mean, each time anew by up to a tenth; what all have
    launched lands in a worker's next iteration but one."""
    workers, seed = batches.workers, batches.seed
    first = [w.ravel() for w in start(seed)]
    world = Workers(program_of(text), PARAMETERS, workers, Prompt(late=2), seed, first, rule)
    rule.done = [0] * workers
    looks: dict[int, list[list[Array]]] = {}
    for worker in turns(workers, seed):
        iteration = rule.done[worker] = world.iterations(worker)
        world.advance(worker, gradient(world.weights(worker), *batches.next(worker)))
        if looked(iteration):
            looks.setdefault(iteration, []).append([w.copy() for w in world.weights(worker)])
    return averaged([outcome(weights) for weights in looks.values()])


def turns(workers: int, seed: int) -> list[int]:
    """Whose iteration comes next, until each has had as many."""
    draw = np.random.default_rng((seed, 4))
    speed = np.linspace(0.7, 1.3, workers)
    took = speed[:, None] * draw.uniform(0.9, 1.1, (workers, ITERATIONS))
    ends = np.cumsum(took, axis=1)
    order = np.argsort(ends, axis=None, kind="stable")
    return [int(place // ITERATIONS) for place in order]


def looked(iteration: int) -> bool:
    left = ITERATIONS - 1 - iteration
    return left % BETWEEN == 0 and left < LOOKS * BETWEEN


def outcome(weights: list[list[Array]]) -> Outcome:
    mean = [np.mean(of_all, axis=0) for of_all in zip(*weights, strict=True)]
    loss, accuracy = held_out(mean)
    apart = max(float(np.abs(w - m).max()) for mine in weights for w, m in zip(mine, mean, strict=True))
    return Outcome(loss, accuracy, apart)


def averaged(looks: list[Outcome]) -> Outcome:
    return Outcome(*(float(np.mean([getattr(o, f) for o in looks])) for f in ("loss", "accuracy", "apart")))


# --- in real processes


def in_processes(text: str, settings: Settings, split: str, workers: int, seed: int) -> Outcome:
    import torch.multiprocessing as processes

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = processes.get_context("spawn").SimpleQueue()
    arguments = (workers, port, text, settings, split, seed, results)
    processes.spawn(worker, arguments, nprocs=workers)  # type: ignore[no-untyped-call]
    made = dict(results.get() for _ in range(workers))
    return made[0]


def worker(
    rank: int, workers: int, port: int, text: str, settings: Settings, split: str, seed: int, results: Any
) -> None:
    import torch
    import torch.distributed as dist

    import relaxc

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=workers)
    model = torch.nn.ParameterList([torch.tensor(w) for w in start(seed)])
    optimizer = torch.optim.SGD(model.parameters(), settings.rate, momentum=settings.momentum)
    relaxed = relaxc.compile(text).attach(model, optimizer, timeout=120)
    batches = Batches(split, workers, seed)
    looks = []
    for iteration in range(ITERATIONS):
        optimizer.param_groups[0]["lr"] = settings.rate * (0.1 if iteration >= ITERATIONS * 3 // 4 else 1)
        relaxed.complete()
        made = gradient([p.detach().numpy() for p in model], *batches.next(rank))
        torch.stack(
            [(p * torch.from_numpy(g).view_as(p)).sum() for p, g in zip(model, made, strict=True)]
        ).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if looked(iteration):
            own = [p.detach().numpy().copy() for p in model]
            with relaxed.consensus():
                mean = [p.detach().numpy().copy() for p in model]
            looks.append(
                Outcome(*held_out(mean), max(float(np.abs(a - b).max()) for a, b in zip(own, mean, strict=True)))
            )
    results.put((rank, averaged(looks)))
    relaxed.detach()
    dist.destroy_process_group()
