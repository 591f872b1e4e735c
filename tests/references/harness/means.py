"""Means of coded values: how they travel to who sums them and back, and what encoders remember."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from references.harness.codes import Code
from references.harness.team import Given, Team, average, step_with
from torch import Tensor


class Drawing(Protocol):
    """A code that rounds at random, with a number in [0, 1) for each element."""

    def __call__(self, x: Tensor, u: Tensor) -> Tensor: ...


def coded_mean(code: Code, values: list[Tensor]) -> Tensor:
    """Each contribution is coded, and their mean once more."""
    return code(average([code(value) for value in values]))


def drawn_mean(code: Drawing, values: list[Tensor], given: Given, iteration: int) -> Tensor:
    sent = [code(value, given.uniforms(iteration, rank)) for rank, value in enumerate(values)]
    return code(average(sent), given.uniforms(iteration, None))


class Squeeze:
    """DoubleSqueeze (Tang et al. 2019): both legs coded, each encoder adding what it lost before."""

    def __init__(self, code: Code, owner_remembers: bool = True) -> None:
        self.code, self.owner_remembers = code, owner_remembers
        self.lost: dict[int, Tensor] = {}
        self.lost_by_owner: Tensor | float = 0.0

    def mean(self, values: list[Tensor]) -> Tensor:
        sent = [self._sent(rank, value) for rank, value in enumerate(values)]
        wanted = average(sent) + self.lost_by_owner
        result = self.code(wanted)
        if self.owner_remembers:
            self.lost_by_owner = wanted - result
        return result

    def _sent(self, rank: int, value: Tensor) -> Tensor:
        wanted = value + self.lost.get(rank, 0.0)
        sent = self.code(wanted)
        self.lost[rank] = wanted - sent
        return sent


def coded_gradients(team: Team, code: Code) -> Iterator[None]:
    while True:
        step_with(team, coded_mean(code, [w.gradient for w in team]))
        yield


def drawn_gradients(team: Team, given: Given, code: Drawing) -> Iterator[None]:
    iteration = 0
    while True:
        step_with(team, drawn_mean(code, [w.gradient for w in team], given, iteration))
        iteration += 1
        yield
