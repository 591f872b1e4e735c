"""Full precision within a machine, 8-bit min-max across (as in Bagua, Gan et al. 2021): each machine's sum is coded,
with what its code lost before, and the mean of all machines' codes is coded once more for the way back."""

from __future__ import annotations

from collections.abc import Iterator

from references.harness.codes import minmax
from references.harness.team import Given, Team, step_with
from torch import Tensor


def rule(team: Team, given: Given, inner: int = 1) -> Iterator[None]:
    """`inner` workers are on each machine."""
    machines = [team[first : first + inner] for first in range(0, len(team), inner)]
    lost = [0 * team[0].weight for _ in machines]
    while True:
        sums = [total([worker.gradient for worker in machine]) for machine in machines]
        if len(machines) == 1:
            mean = sums[0] * (1 / len(team))
        else:
            wanted = [s + kept for s, kept in zip(sums, lost, strict=True)]
            sent = [minmax(8, w) for w in wanted]
            lost = [w - s for w, s in zip(wanted, sent, strict=True)]
            mean = minmax(8, total(sent) * (1 / len(team)))
        step_with(team, mean)
        yield


def total(values: list[Tensor]) -> Tensor:
    return sum(values[1:], values[0])
