"""DiLoCo (Douillard et al. 2023): the outer optimiser is torch's own Nesterov SGD."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references.harness.team import Given, Team, average, place, step_alone

SETTINGS = {"period": 5}


def rule(team: Team, given: Given, period: int) -> Iterator[None]:
    anchor = torch.nn.Parameter(team[0].weight.clone())
    outer = torch.optim.SGD([anchor], 0.7, momentum=0.9, nesterov=True)
    for t in range(1, 10**6):
        step_alone(team)
        if t % period == 0:
            anchor.grad = average([anchor.detach() - w.weight for w in team])
            outer.step()
            place(team, [anchor.detach().clone()] * len(team))
        yield
