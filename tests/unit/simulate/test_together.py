"""Many workers at once give the interpreter's bits, for every spec."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.resources import folder
from relaxc.simulate.descent import Descent
from relaxc.simulate.together import Together, in_step
from relaxc.wire.parameters import Parameter

PARAMETERS = [Parameter(0, "a", (30, 43), "f32"), Parameter(1, "b", (7,), "bf16"), Parameter(2, "c", (), "f64"),
              Parameter(3, "d", (513,), "f16")]  # fmt: skip
SPECS = sorted(folder("specs").glob("*.relax"))
ITERATIONS = 9


@cache
def program_of(text: str) -> Program:
    return pipeline.to_typed(pipeline.to_spec(Source("t.relax", text), {})).program


def starts() -> list[Any]:
    draw = np.random.default_rng(1)
    return [draw.normal(size=p.elements) for p in PARAMETERS]


def gradients(iteration: int, workers: int) -> list[Any]:
    draw = np.random.default_rng((2, iteration))
    return [draw.normal(size=(workers, p.elements)).astype(np.float32) for p in PARAMETERS]


def same(program: Program, workers: int, iterations: int = ITERATIONS, inner: int = 1) -> None:
    rules = [Descent(0.05, 0.9) for _ in range(2)]
    slow = Interpreter(program, PARAMETERS, workers, 7, starts(), rules[0], inner=inner)
    quick = Together(program, PARAMETERS, workers, 7, starts(), rules[1], inner=inner)
    for iteration in range(iterations):
        grads = gradients(iteration, workers)
        slow.iterate([[rows[w] for rows in grads] for w in range(workers)])
        quick.advance(grads)
        for p in PARAMETERS:
            wanted = np.stack([weights[p.number] for weights in slow.weights])
            assert wanted.tobytes() == quick.rows(p.number).tobytes(), f"{p.name} in iteration {iteration}"
            for w in range(workers):
                for name, value in slow.states(w, p.number).items():
                    found = np.asarray(quick.states(w, p.number)[name], np.asarray(value).dtype)
                    assert np.asarray(value).tobytes() == found.tobytes(), f"{name} of {p.name} in {iteration}"


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_every_spec(path: Any) -> None:
    program = program_of(path.read_text())
    if in_step(program):
        same(program, 4)
    else:
        with pytest.raises(ValueError, match="own pace"):
            Together(program, PARAMETERS, 4)


UNEVEN = {
    "own weights differ": "algorithm a() { step weight += 0.5 * (mix(weight, chain) - own(chain) * weight) } relax with a",
    "ranks": "algorithm a() { state s = 1  step  s = s + rank * t  weight += 0.001 * s } relax with a",
    "cells": "algorithm a() { state n = 0  step  n = mean(norm(grad))  weight -= 0.1 * grad / (n + 1) } relax with a",
    "numbers": "algorithm a() { state k = 1  step  k = k / 2 + rank  weight *= 1 - 0.01 * min(k, 2) } relax with a",
    "mixed numbers": "algorithm a() { state m = 1  step  m = mix(m * 2, star)  weight += 0.01 * m } relax with a",
    "dither": "relax gradients { compress = absmax(4, rounding = stochastic), feedback = worker }",
    "gathered": "relax gradients { compress = 4bit, route = gather, feedback = worker }",
    "near": "algorithm a() { step let q = encode(weight, modulo(8))  weight += mix(q, star) - decode(q) } relax with a",
    "late": "relax gradients { compress = 8bit, delay = 2, feedback = both }",
    "random": "relax weights { topology = random_pairs, every = geometric(2) }",
    "complete": "relax weights { topology = complete, compress = 4bit }",
}


@pytest.mark.parametrize("workers", [1, 5])
@pytest.mark.parametrize("which", UNEVEN)
def test_what_differs_between_workers(which: str, workers: int) -> None:
    same(program_of(UNEVEN[which]), workers, 5)


def test_machines() -> None:
    same(program_of("relax gradients { compress = 8bit, route = hierarchy, feedback = both }"), 4, inner=2)
    same(program_of("relax weights { topology = hierarchy(ring) }"), 6, inner=2)


def test_no_gradient_to_step_with_while_nothing_has_landed() -> None:
    same(program_of("algorithm a() { let g = grad * 2  after 2 { grad = mean(g) } step } relax with a"), 3)
