"""What a run recorded, the interpreter does again, to the bit."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.record import read_record, replay
from relaxc.wire.parameters import Parameter

SHAPES = {"a": ((40, 30), "f32"), "b": ((7,), "f32"), "c": ((5, 120), "f64")}
PARAMETERS = [Parameter(n, name, shape, dtype) for n, (name, (shape, dtype)) in enumerate(SHAPES.items())]
RATE, ITERATIONS = 0.1, (25, 40, 32, 28)
PATIENCE = 300
"""Iterations more, on a busy machine, until something has landed."""

CODED = "let code = encode(weight, minmax(4, block = 64, rounding = stochastic))"
SPECS = {
    "ready": "relax weights { topology = ready_pairs(complete), delay = async }",
    "pairs": "relax weights { topology = random_pairs, delay = async }",
    "pairs, bounded": "relax weights { topology = random_pairs, delay = async(max = 2) }",
    "ring, every 3": "relax weights { topology = ring, every = 3, delay = async }",
    "codes": f"""algorithm coded() {{
      step
      {CODED}
      let moved = mix(code, random_pairs) - decode(code)
      after async {{ weight += moved }}
    }}
    relax with coded""",
    "codes, ready": f"""algorithm coded() {{
      step
      {CODED}
      let moved = mix(code, ready_pairs(ring)) - decode(code)
      after async {{ weight += moved }}
    }}
    relax with coded""",
    "coded mean": """algorithm mean8() {
      step
      let own = weight
      let middle = mean(weight, compress = minmax(8, block = 64, rounding = stochastic), feedback = none)
      after async { weight += middle - own }
    }
    relax with mean8""",
}


# a ParameterDict sorts its names


LIBRARY = ("async_bytegrad", "adpsgd", "swarm", "swarm_8bit")
SPECS |= {name: (Path(__file__).parents[2] / "specs" / f"{name}.relax").read_text() for name in LIBRARY}


def first_weight(p: Parameter) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(p.number).normal(size=p.elements)
    return drawn.astype(np.float64 if p.dtype == "f64" else np.float32)


def gradient(worker: int, iteration: int, p: Parameter) -> np.ndarray[Any, Any]:
    drawn = np.random.default_rng(1000 * worker + 10 * iteration + p.number).normal(size=p.elements)
    return drawn.astype(np.float64 if p.dtype == "f64" else np.float32)


def train(rank: int, workers: int, spec: str, path: str) -> tuple[list[list[Any]], int]:
    """The weights after each iteration, by parameter, and how often something landed."""
    import torch

    import relaxc

    model = torch.nn.ParameterDict(
        {p.name: torch.nn.Parameter(torch.from_numpy(first_weight(p)).reshape(p.shape)) for p in PARAMETERS}
    )
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=30)
    draw, seen = random.Random(rank), []
    tensors = [model[p.name] for p in PARAMETERS]
    with relaxed.record(path):
        for iteration in range(ITERATIONS[rank] + PATIENCE):
            if iteration >= ITERATIONS[rank] and relaxed.stats()["landed"]:
                break
            made = [torch.from_numpy(gradient(rank, iteration, p)).reshape(p.shape) for p in PARAMETERS]
            optimizer.zero_grad()
            torch.autograd.backward(tensors, made)
            optimizer.step()
            relaxed.complete()
            seen.append([t.detach().numpy().ravel().copy() for t in tensors])
            time.sleep(0.006 * draw.random())
        landed = relaxed.stats()["landed"]
        relaxed.detach()
    return seen, landed


class Sgd:
    """torch's own, as the interpreter's rule."""

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        import torch

        tensor = torch.nn.Parameter(torch.from_numpy(weight.copy()))
        tensor.grad = torch.from_numpy(grad.copy())
        torch.optim.SGD([tensor], RATE).step()
        return tensor.detach().numpy()

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return RATE

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise AssertionError(name)


@pytest.mark.parametrize("workers", [2, 3, 4])
@pytest.mark.parametrize("name", SPECS)
def test_the_interpreter_goes_the_same_way(pool: Pool, name: str, workers: int, tmp_path: Path) -> None:
    answers = pool.run(train, workers, SPECS[name], str(tmp_path))
    found, landed = zip(*answers, strict=True)
    assert sum(landed) >= 1  # one that is through before the others begin may have met nobody
    program = pipeline.to_program(pipeline.to_spec(Source("spec", SPECS[name]), {}))
    wanted = replay(
        program, PARAMETERS, workers, SEED, [first_weight(p) for p in PARAMETERS], Sgd,
        read_record(tmp_path, workers),
        lambda worker, iteration, _weights: [gradient(worker, iteration, p) for p in PARAMETERS],
        [len(weights) for weights in found],
    )  # fmt: skip
    for worker in range(workers):
        for iteration in range(len(found[worker])):
            for p in PARAMETERS:
                one, other = found[worker][iteration][p.number], wanted[worker][iteration][p.number]
                assert np.array_equal(one, other), f"worker {worker}, {p.name} after iteration {iteration}"
