"""The interpreter, which says what programs mean, against tests/references/, where each has most to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reference_runs import Weights, close, program_of, reference, simulated, text_of, with_links
from references.harness.team import STEPS, Setup, problem, rate, setup, start
from references.harness.variants import FIVE, VARIANTS

from relaxc.emit.plan import SEED
from relaxc.program.interpret import Interpreter
from relaxc.wire.parameters import Parameter

NAMES = sorted({*FIVE, "hierarchical", "moniqua"} - {"demo"})
"""Transforms of 64 x 64 elements take long in Python: demo is here with the small blocks of a variant."""


class Sgd:
    """torch's, as a program sees the user's optimiser."""

    def __init__(self, of: Setup) -> None:
        self.of, self.rate = of, rate(0)
        self.buffers: dict[tuple[int, int], Any] = {}

    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        key, grad = (worker, parameter.number), grad + self.of.decay * weight
        self.buffers[key] = grad if key not in self.buffers else self.of.momentum * self.buffers[key] + grad
        return weight - self.rate * self.buffers[key]

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": self.rate, "weight_decay": self.of.decay}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Any:
        raise AssertionError(f"these specs read no {name}")


def interpreted(spec: str, of: Setup, workers: int, inner: int) -> Weights:
    parameters = [Parameter(number, str(number), shape, "f64") for number, shape in enumerate(of.shapes)]
    starts, sgd = [start(p.number, p.shape).numpy() for p in parameters], Sgd(of)
    interpreter = Interpreter(program_of(spec), parameters, workers, SEED, starts, sgd, messages=True, inner=inner or 1)
    problems = [[problem(rank, p.number, p.shape) for p in parameters] for rank in range(workers)]
    made: Weights = [[] for _ in range(workers)]
    for step in range(STEPS):
        sgd.rate = rate(step)
        interpreter.iterate([gradients(*of_rank) for of_rank in zip(interpreter.weights, problems, strict=True)])
        for rank, weights in enumerate(interpreter.weights):
            made[rank].append([w.reshape(p.shape).copy() for w, p in zip(weights, parameters, strict=True)])
    return made


def gradients(weights: list[Any], problems: list[Any]) -> list[Any]:
    return [a.numpy() * (w.reshape(a.shape) - b.numpy()) for w, (a, b) in zip(weights, problems, strict=True)]


@pytest.mark.parametrize("name", NAMES)
def test_a_spec(name: str) -> None:
    of, workers = reference(name), 5 if name in FIVE else 4
    settings = getattr(of, "SETTINGS", {})
    close(interpreted(text_of(name), setup(of), workers, 0), simulated(text_of(name), of, settings, workers))


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant(variant: str, tmp_path: Path) -> None:
    this = VARIANTS[variant]
    spec, of, workers = with_links(this.text, this.links, tmp_path), reference(this.of), this.workers[-1]
    close(interpreted(spec, setup(of), workers, this.inner), simulated(spec, of, this.settings, workers))
