"""Moniqua against its equations in plain torch, with the drawn numbers injected: fifty steps in f64, trips among them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.exchange import encoding_keys
from relaxc.program.interpret import Interpreter
from relaxc.resources import folder
from relaxc.topology.topology import Topology
from relaxc.topology.weights import weights
from relaxc.wire.parameters import Parameter

sys.path.insert(0, str(Path(__file__).parents[1] / "references"))
import moniqua

STEPS, RATE, ELEMENTS, SEED = 50, 0.02, 1300, 3
PARAMETER = Parameter(0, "p", (ELEMENTS,), "f64")


def problem(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """sum(a * (w - b)^2) / 2: (a, b). What workers want differs in the last elements, so they are far apart there."""
    draw = torch.Generator().manual_seed(rank)
    b = torch.randn(ELEMENTS, generator=torch.Generator().manual_seed(99), dtype=torch.float64)
    b[-200:] += 20 * torch.randn(200, generator=draw, dtype=torch.float64)
    return 0.5 + torch.rand(ELEMENTS, generator=draw, dtype=torch.float64), b


class Worker:
    def __init__(self, rank: int) -> None:
        self.weight = torch.zeros(ELEMENTS, dtype=torch.float64)
        self.a, self.b = problem(rank)

    @property
    def gradient(self) -> torch.Tensor:
        return self.a * (self.weight - self.b)

    def step(self, gradient: torch.Tensor) -> None:
        self.weight = self.weight - RATE * gradient


@dataclass
class Given:
    workers: int

    def matrix(self, round: int) -> torch.Tensor:
        rows = torch.zeros(self.workers, self.workers, dtype=torch.float64)
        for rank in range(self.workers):
            for peer, weight in weights(Topology("ring"), self.workers, round, SEED, rank):
                rows[rank, peer] = weight
        return rows

    def uniforms(self, iteration: int, rank: int) -> torch.Tensor:
        """As the generator draws them: 24 bits of a hash of the key and the element's number."""
        keys = encoding_keys(SEED, iteration, 0, rank, PARAMETER)
        return torch.from_numpy(drawn(keys))


def drawn(keys: tuple[int, int]) -> Any:
    def mixed(h: Any) -> Any:
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            h = (h ^ (h >> np.uint32(shift))) * np.uint32(factor)
        return h ^ (h >> np.uint32(16))

    with np.errstate(over="ignore"):
        bits = mixed(mixed(np.arange(ELEMENTS, dtype=np.uint32) ^ np.uint32(keys[0])) + np.uint32(keys[1]))
    return (bits >> np.uint32(8)).astype(np.float64) * 2.0**-24


class Sgd:
    def step(self, worker: int, parameter: Parameter, weight: Any, grad: Any) -> Any:
        return weight - RATE * grad


@pytest.mark.parametrize("workers", [2, 3, 4])
def test_the_spec_is_its_equations(workers: int) -> None:
    text = (folder("specs") / "moniqua.relax").read_text()
    program = pipeline.to_program(pipeline.to_spec(Source("moniqua", text), {}))
    interpreter = Interpreter(program, (PARAMETER,), workers, seed=SEED, optimizer=Sgd())  # type: ignore[arg-type]
    team = [Worker(rank) for rank in range(workers)]
    running = moniqua.rule(team, Given(workers))
    apart = 0.0
    for _ in range(STEPS):
        held = [interpreter.weights[rank][0] for rank in range(workers)]
        problems = [problem(rank) for rank in range(workers)]
        interpreter.iterate(
            [[(a * (torch.from_numpy(w) - b)).numpy()] for (a, b), w in zip(problems, held, strict=True)]
        )
        next(running)
        for rank, worker in enumerate(team):
            np.testing.assert_allclose(interpreter.weights[rank][0], worker.weight.numpy(), rtol=1e-9, atol=1e-9)
        apart = max(apart, float((team[0].weight - team[1].weight).abs().max()))
    assert apart > 0.128, "nothing was beyond the codec's range"
