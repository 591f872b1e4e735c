"""Workers with different quadratic losses, in float64, trained by the interpreter: what references are held against."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.wire.dither import chosen, parameter_keys, shared_key
from relaxc.wire.parameters import Parameter

STEPS, RATE, DECAY = 50, 0.05, 0.01
SHAPES = ((40, 30), (7,), (70, 71), (1, 1))
"""Of parameters: several blocks, a vector that goes in full, one of more than a block of 4096, a single element."""
Array = np.ndarray[Any, Any]


def problem(worker: int, number: int) -> tuple[Array, Array]:
    """A worker's loss of a parameter is sum(a * (w - b)^2) / 2: (a, b)."""
    draw = np.random.default_rng([worker, number])
    return 0.5 + draw.random(SHAPES[number]), draw.standard_normal(SHAPES[number])


def start(number: int) -> Array:
    return np.random.default_rng([99, number]).standard_normal(SHAPES[number])


@dataclass
class Descent:
    """SGD, as a program sees the user's optimiser."""

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        return weight - RATE * grad

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": RATE, "weight_decay": DECAY}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Array:
        raise KeyError(name)


def interpreted(spec: str, workers: int) -> list[list[list[Array]]]:
    """By step, worker and parameter: the weights behind that step."""
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    parameters = [Parameter(n, f"p{n}", shape, "f64") for n, shape in enumerate(SHAPES)]
    begin = [start(n) for n in range(len(SHAPES))]
    interpreter = Interpreter(program, parameters, workers, SEED, begin, Descent(), messages=True)
    made = []
    for _ in range(STEPS):
        grads = []
        for worker, weights in enumerate(interpreter.weights):
            losses = [problem(worker, n) for n in range(len(SHAPES))]
            grads.append([a * (w.reshape(a.shape) - b) for w, (a, b) in zip(weights, losses, strict=True)])
        interpreter.iterate(grads)
        made.append([[w.reshape(s).copy() for w, s in zip(ws, SHAPES, strict=True)] for ws in interpreter.weights])
    return made


def close(found: list[list[list[Array]]], wanted: list[list[list[Any]]]) -> None:
    """To 1e-9, relative to the largest."""
    for step, (now, then) in enumerate(zip(found, wanted, strict=True)):
        for mine, theirs in zip(now, then, strict=True):
            for number, (a, b) in enumerate(zip(mine, map(np.asarray, theirs), strict=True)):
                worst, size = np.abs(a - b).max(), np.abs(b).max()
                assert worst <= 1e-9 * size, f"parameter {number} after step {step}"


def drawn(iteration: int, number: int, elements: int, block: int) -> list[int]:
    """The elements of a parameter that everyone draws, one of each block, as the plan draws them."""
    keys = parameter_keys(shared_key(SEED, iteration), number)
    places = [start + chosen(keys, start // block, block) for start in range(0, elements, block)]
    return [place for place in places if place < elements]
