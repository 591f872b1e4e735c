"""Push-sum and relays against independent implementations in plain torch (tests/references/), over graphs whose links
go one way and unevenly, too: 50 steps in float64 to 1e-9, in the interpreter and in real processes."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import exchanges
from relaxc.topology.weights import weights as mixing_weights
from relaxc.wire.parameters import Parameter

STEPS, RATE, MOMENTUM = 50, 0.05, 0.9
SHAPES = ((13, 5), (1,))
PARAMETERS = tuple(Parameter(n, str(n), shape, "f64") for n, shape in enumerate(SHAPES))
UNEVEN = {
    2: "0 1\n1 0",
    3: "0 1\n1 2\n2 0\n0 2",
    4: "0 1\n1 2\n2 3\n3 0\n0 2\n0 3",
    5: "0 1\n1 2\n2 3\n3 4\n4 0\n0 2\n0 3\n2 1",
}
"""Strongly connected, some workers heard by many and some by one."""
GIVEN = {3: "0 1 0.5\n1 2 0.75\n2 0 0.2\n0 2 0.3", 4: "0 1 0.1\n1 2 0.9\n2 3 0.5\n3 0 0.25\n0 2 0.6\n2 0 0.4"}
ALL_AWAY = "0 1 1\n1 2 1\n2 0 0.5"
"""Workers that keep nothing."""
BRANCHED = {4: "0 1\n1 2\n1 3", 5: "4 1\n1 0\n3 1\n2 0"}


def start(number: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng([7, number]).standard_normal(SHAPES[number])


def problem(rank: int, number: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Worker `rank`'s loss of a parameter is sum(a * (w - b)^2) / 2."""
    draw = np.random.default_rng([rank, number])
    return 0.5 + draw.random(SHAPES[number]), draw.standard_normal(SHAPES[number])


# --- the reference


class Worker:
    def __init__(self, rank: int, number: int) -> None:
        import torch

        self.weight = torch.from_numpy(start(number))
        self.a, self.b = map(torch.from_numpy, problem(rank, number))
        self.buffer: Any = None

    @property
    def gradient(self) -> Any:
        return self.a * (self.weight - self.b)

    def step(self, gradient: Any) -> None:
        self.buffer = gradient if self.buffer is None else MOMENTUM * self.buffer + gradient
        self.weight = self.weight - RATE * self.buffer


@dataclass(frozen=True)
class Given:
    matrix: Any


def expected(name: str, spec: str, workers: int, settings: dict[str, Any]) -> list[list[list[Any]]]:
    """Weights by step, worker and parameter."""
    reference = importlib.import_module(f"references.{name}")
    topology = next(e.topology for body in program_of(spec).bodies for e in exchanges(body.statements))
    assert topology is not None

    def matrix(round: int) -> Any:
        import torch

        full = torch.zeros(workers, workers, dtype=torch.float64)
        for i in range(workers):
            for j, weight in mixing_weights(topology, workers, round, SEED, i):
                full[i, j] = weight
        return full

    made: list[list[list[Any]]] = [[[] for _ in range(workers)] for _ in range(STEPS)]
    for number in range(len(SHAPES)):
        team = [Worker(rank, number) for rank in range(workers)]
        running = reference.rule(team, Given(matrix), **settings)
        for step in range(STEPS):
            next(running)
            for rank, worker in enumerate(team):
                made[step][rank].append(worker.weight.numpy().copy())
    return made


# --- the interpreter


class Sgd:
    def __init__(self) -> None:
        self.buffers: dict[tuple[int, int], Any] = {}

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        key = (worker, parameter.number)
        self.buffers[key] = grad if key not in self.buffers else MOMENTUM * self.buffers[key] + grad
        return weight - RATE * self.buffers[key]

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        raise AssertionError(f"these specs read no {name}")

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise AssertionError(f"these specs read no {name}")


def program_of(spec: str) -> Any:
    return pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))


def interpreted(spec: str, workers: int) -> list[list[list[Any]]]:
    starts = [start(number) for number in range(len(SHAPES))]
    interpreter = Interpreter(program_of(spec), PARAMETERS, workers, seed=SEED, weights=starts, optimizer=Sgd())
    problems = [[problem(rank, number) for number in range(len(SHAPES))] for rank in range(workers)]
    made = []
    for _ in range(STEPS):
        held = interpreter.weights
        interpreter.iterate(
            [
                [a * (w.reshape(a.shape) - b) for w, (a, b) in zip(held[rank], problems[rank], strict=True)]
                for rank in range(workers)
            ]
        )
        made.append([[w.copy() for w in of_worker] for of_worker in interpreter.weights])
    return made


def train(rank: int, workers: int, spec: str) -> list[list[Any]]:
    import torch

    import relaxc

    model = torch.nn.ParameterList([torch.from_numpy(start(number)) for number in range(len(SHAPES))])
    optimizer = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    problems = [tuple(map(torch.from_numpy, problem(rank, number))) for number in range(len(SHAPES))]
    made = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        losses = [(a * (w - b) ** 2).sum() / 2 for w, (a, b) in zip(model, problems, strict=True)]
        sum(losses, torch.tensor(0)).backward()
        optimizer.step()
        relaxed.complete()
        made.append([weight.detach().clone().numpy() for weight in model])
    relaxed.detach()
    return made


def close(found: Any, wanted: Any, where: str) -> None:
    assert np.abs(found.ravel() - wanted.ravel()).max() <= 1e-9 * np.abs(wanted).max(), where


def file_of(text: str, folder: Path) -> str:
    path = folder / "links.txt"
    path.write_text(text)
    return str(path)


CASES = [
    *[(name, "", n) for name in ("sgp", "osgp", "relaysgd") for n in (1, 2, 3, 4, 5)],
    *[(name, f'arrows("{UNEVEN[n]}")', n) for name in ("sgp", "osgp") for n in UNEVEN],
    *[(name, f'arrows("{GIVEN[n]}")', n) for name in ("sgp", "osgp") for n in GIVEN],
    ("sgp", f'arrows("{ALL_AWAY}")', 3),
    *[("relaysgd", f'edges("{BRANCHED[n]}")', n) for n in BRANCHED],
    *[("relaysgd", "star", n) for n in (3, 5)],
    *[("osgp 3 late", "exponential", n) for n in (2, 5)],
]


def text_of(name: str, topology: str, folder: Path) -> str:
    kind, quote, text = topology.partition('("')
    written = f'{kind}("{file_of(text.removesuffix(chr(34) + ")"), folder)}")' if quote else topology
    clauses = [f"topology = {written}"] if topology else []
    clauses += ["late = 3"] if name.endswith("late") else []
    return f"relax with {name.split(maxsplit=1)[0]} {{ {', '.join(clauses)} }}"


@pytest.mark.parametrize(("name", "topology", "workers"), CASES)
def test_the_interpreter_trains_as_the_paper_says(name: str, topology: str, workers: int, tmp_path: Path) -> None:
    spec = text_of(name, topology, tmp_path)
    wanted = expected(name.split(maxsplit=1)[0], spec, workers, {"late": 3} if name.endswith("late") else {})
    for step, of_step in enumerate(interpreted(spec, workers)):
        for rank in range(workers):
            for number in range(len(SHAPES)):
                close(of_step[rank][number], wanted[step][rank][number], f"step {step}, rank {rank}, {number}")


@pytest.mark.parametrize(("name", "topology", "workers"), [case for case in CASES if case[1] and case[2] >= 4])
def test_real_workers_do_so_too(pool: Pool, name: str, topology: str, workers: int, tmp_path: Path) -> None:
    spec = text_of(name, topology, tmp_path)
    wanted = expected(name.split(maxsplit=1)[0], spec, workers, {"late": 3} if name.endswith("late") else {})
    told = interpreted(spec, workers)
    for rank, found in enumerate(pool.run(train, workers, spec)):
        for step in range(STEPS):
            for number in range(len(SHAPES)):
                close(found[step][number], wanted[step][rank][number], f"step {step}, rank {rank}, {number}")
                close(found[step][number], told[step][rank][number], f"interpreter, step {step}, rank {rank}")


def test_a_mix_over_uneven_arrows_would_be_noticed(tmp_path: Path) -> None:
    """The tolerance tells push-sum from a push that does not carry the mass."""
    spec = text_of("sgp", f'arrows("{UNEVEN[4]}")', tmp_path)
    topology = spec.partition("topology = ")[2].rpartition(" }")[0]
    bare = f"algorithm b {{ step  weight = push(weight, {topology}) }}\nrelax with b"
    one, other = interpreted(spec, 4), interpreted(bare, 4)
    assert np.abs(one[-1][0][0] - other[-1][0][0]).max() > 1e-2
