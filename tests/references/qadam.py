"""QAdam (Bagua): torch's Adam while warming up; then v is frozen, its correction goes on, and m is averaged in 8 bits on
both legs."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from references.harness.codes import minmax
from references.harness.means import coded_mean
from references.harness.team import Given, Team, average, place

SETTINGS = {"warmup": 10}
MOMENTUM = 0


def rule(team: Team, given: Given, warmup: int) -> Iterator[None]:
    weight = torch.nn.Parameter(team[0].weight.clone())
    adam = torch.optim.Adam([weight], betas=(0.9, 0.999), eps=1e-8)
    for _ in range(warmup):
        adam.param_groups[0]["lr"] = team[0].rate
        weight.grad = average([w.gradient for w in team])
        adam.step()
        place(team, [weight.detach().clone()] * len(team))
        yield
    m, v = adam.state[weight]["exp_avg"], adam.state[weight]["exp_avg_sq"]
    for t in range(warmup + 1, 10**6):
        m = coded_mean(lambda x: minmax(8, x), [0.9 * m + 0.1 * w.gradient for w in team])
        moved = team[0].rate / (1 - 0.9**t) * m / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        place(team, [team[0].weight - moved] * len(team))
        yield
