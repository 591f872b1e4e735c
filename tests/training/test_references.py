"""Published algorithms against code that shares nothing with relaxc: plain torch, from the update equations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pool import Pool

WORKERS, ITERATIONS, ELEMENTS = 3, 12, 4000


def gradients(rank: int) -> list[Any]:
    """Seeded: one vector per iteration."""
    import torch

    draw = torch.Generator().manual_seed(100 + rank)
    return [torch.randn(ELEMENTS, generator=draw) for _ in range(ITERATIONS)]


def train(rank: int, workers: int, spec: str) -> list[Any]:
    """The weight after each iteration of SGD with learning rate 0.1 on scripted gradients."""
    import torch

    import relaxc

    model = torch.nn.ParameterList([torch.zeros(ELEMENTS)])
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    weights = []
    for grad in gradients(rank):
        (model[0] * grad).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        weights.append(model[0].detach().clone().numpy())
    relaxed.detach()
    return weights


# --- the references


def blockwise(code: Callable[[Any], Any], block: int) -> Callable[[Any], Any]:
    import torch

    return lambda x: torch.cat([code(part) for part in x.split(block)])


def minmax(bits: int) -> Callable[[Any], Any]:
    """Quantise each block between its least and largest value."""

    def code(x: Any) -> Any:
        scale = (x.max() - x.min()) / (2**bits - 1)
        return x.min() + ((x - x.min()) / scale).round() * scale

    return blockwise(code, 512)


def signs() -> Callable[[Any], Any]:
    """Signs times the mean magnitude (Seide 2014)."""
    return blockwise(lambda x: x.abs().mean() * ((x >= 0).float() * 2 - 1), 2048)


def error_feedback(code: Callable[[Any], Any], worker: bool, owner: bool) -> list[Any]:
    """Double squeeze (Tang 2019): both legs coded, each encoder adding what it lost before."""
    import torch

    lost, lost_by_owner = [torch.zeros(ELEMENTS) for _ in range(WORKERS)], torch.zeros(ELEMENTS)
    weight, weights = torch.zeros(ELEMENTS), []
    made = [gradients(rank) for rank in range(WORKERS)]
    for iteration in range(ITERATIONS):
        received = []
        for rank in range(WORKERS):
            wanted = made[rank][iteration] + lost[rank]
            received.append(code(wanted))
            lost[rank] = wanted - received[-1] if worker else lost[rank]
        mean = sum(received) * (1 / WORKERS) + lost_by_owner
        result = code(mean)
        lost_by_owner = mean - result if owner else lost_by_owner
        weight = weight - 0.1 * result
        weights.append(weight.numpy())
    return weights


def delayed(late: int) -> list[Any]:
    import torch

    weight, weights = torch.zeros(ELEMENTS), []
    made = [gradients(rank) for rank in range(WORKERS)]
    for iteration in range(ITERATIONS):
        if iteration >= late:
            weight = weight - 0.1 * sum(g[iteration - late] for g in made) / WORKERS
        weights.append(weight.numpy())
    return weights


def cast(kind: str) -> list[Any]:
    import torch

    return error_feedback(lambda x: x.to(getattr(torch, kind)).float(), worker=False, owner=False)


REFERENCES: dict[str, Callable[[], list[Any]]] = {
    "allreduce": lambda: delayed(0),
    "delayed_sgd": lambda: delayed(1),
    "relax gradients { delay = 3 }": lambda: delayed(3),
    "fp16": lambda: cast("float16"),
    "bf16": lambda: cast("bfloat16"),
    "bytegrad": lambda: error_feedback(minmax(8), worker=False, owner=False),
    "double_squeeze": lambda: error_feedback(signs(), worker=True, owner=True),
    "relax gradients { compress = 4bit }": lambda: error_feedback(minmax(4), worker=True, owner=True),
    "relax gradients { compress = 2bit, feedback = worker }": lambda: error_feedback(
        minmax(2), worker=True, owner=False
    ),
}


@pytest.mark.parametrize("spec", REFERENCES)
def test_a_plan_trains_as_the_published_equations_say(pool: Pool, spec: str) -> None:
    """To float error: a level that lies on a rounding border may fall to either side, so a few elements may differ."""
    import numpy as np

    expected = REFERENCES[spec]()
    for weights in pool.run(train, WORKERS, spec):
        for found, wanted in zip(weights, expected, strict=True):
            close = np.isclose(found, wanted, rtol=1e-4, atol=1e-5)
            assert close.mean() > 0.998, f"{(~close).sum()} of {ELEMENTS} elements differ"
