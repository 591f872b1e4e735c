"""What comments of specs promise where workers' data differ, against the optimum in closed form.

Worker r's loss is sum(a_r * (w - b_r)^2) / 2, so the optimum of the whole is sum(a_r b_r) / sum(a_r).
"""

from __future__ import annotations

import pytest
from pool import Pool
from references.harness.team import SHAPES, problem, start

WORKERS, STEPS = 4, 250


def distance(rank: int, workers: int, spec: str, rate: float, falls: bool) -> float:
    """This worker's largest distance from the optimum after training with plain SGD."""
    import torch

    import relaxc

    number, shape = 0, SHAPES[0]
    model = torch.nn.ParameterList([start(number, shape)])
    optimizer = torch.optim.SGD(model.parameters(), rate)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    a, b = problem(rank, number, shape)
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate / (1 + step / 10) if falls else rate
        optimizer.zero_grad()
        ((model[0] - b) ** 2 * a).sum().div(2).backward()
        optimizer.step()
        model.state_dict()  # whoever reads the weights sees them complete
    team = [problem(peer, number, shape) for peer in range(workers)]
    optimum = sum(a * b for a, b in team) / sum(a for a, _ in team)
    relaxed.detach()
    assert model[0].shape == shape
    return float((model[0] - optimum).abs().max().detach())


@pytest.mark.parametrize("spec", ["d2", "gradient_tracking", "allreduce"])
def test_data_that_differ_don_t_pull_these_apart(pool: Pool, spec: str) -> None:
    assert max(pool.run(distance, WORKERS, spec, 0.1, False)) < 1e-5


@pytest.mark.parametrize("spec", ["dpsgd", "dpsgd_atc", "local_sgd", "gossipgrad"])
def test_but_these(pool: Pool, spec: str) -> None:
    assert max(pool.run(distance, WORKERS, spec, 0.1, False)) > 0.1


FALLING = {
    "allreduce": (0, 0.05),
    "bytegrad": (0, 0.05),
    "natural": (0, 0.1),
    "double_squeeze": (0, 1),
    "ef_signsgd": (0, 1),
    "relax gradients { compress = 1bit, feedback = none }": (1.5, 5),
    "majority_vote": (1.5, 5),
}
"""Between which distances each ends with a learning rate that falls: unbiased codes and memories of what was lost go to the
optimum at the rate's pace; signs without a memory, and votes, do not. The start is 4 away."""


@pytest.mark.parametrize("spec", FALLING)
def test_signs_need_a_memory(pool: Pool, spec: str) -> None:
    least, most = FALLING[spec]
    assert least <= max(pool.run(distance, WORKERS, spec, 0.3, True)) < most
