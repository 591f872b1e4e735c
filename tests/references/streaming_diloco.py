"""Streaming DiLoCo (Douillard et al. 2025): what a fragment has moved leaves in one iteration and is applied `late` ones later:
the outer step on the anchor, then weights between themselves and it. Each parameter is a fragment with its own offset; 4-bit
levels with both memories. The outer optimiser is torch's own."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references.harness.codes import minmax
from references.harness.means import Squeeze
from references.harness.team import Given, Team, step_alone

SETTINGS = {"period": 7, "late": 3}


def rule(team: Team, given: Given, period: int, late: int, keep: float = 0.5) -> Iterator[None]:
    anchor = torch.nn.Parameter(team[0].weight.clone())
    outer = torch.optim.SGD([anchor], 0.7, momentum=0.9, nesterov=True)
    squeeze, under_way = Squeeze(lambda x: minmax(4, x)), {}
    for t in range(1, 10**6):
        step_alone(team)
        if (t + given.head_start(period)) % period == 0:
            under_way[t + late] = squeeze.mean([anchor.detach() - w.weight for w in team])
        if t in under_way:
            anchor.grad = under_way.pop(t)
            outer.step()
            for worker in team:
                worker.weight = keep * worker.weight + (1 - keep) * anchor.detach()
        yield
