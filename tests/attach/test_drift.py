"""`check_every` compares replicas where they must be identical, when their weights are complete."""

from __future__ import annotations

import pytest
from pool import Pool, WorkerError


def train(rank: int, workers: int, spec: str, spoil: bool) -> list[str]:
    import warnings

    import torch

    import relaxc

    model = torch.nn.Linear(5, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=30, check_every=2)
    try:
        for step in range(6):
            model(torch.full((2, 5), 1.0 + rank)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            if spoil and step == 3 and rank == 1:
                relaxed.complete()
                model.weight.data[1, 2] += 1
    finally:
        relaxed.detach()
    return [str(w.message) for w in said]


AVERAGED = "algorithm averaged() { step  weight = mean(weight) }\nrelax with averaged"
TRACKED = "algorithm tracked() { state moved = 0  moved = mean(grad)  weight -= lr * moved }\nrelax with tracked"


@pytest.mark.parametrize("spec", ["relax gradients", AVERAGED, TRACKED])
def test_identical_replicas_pass(pool: Pool, spec: str) -> None:
    assert pool.run(train, 3, spec, False) == [[], [], []]


@pytest.mark.parametrize("spec", ["relax gradients", TRACKED])
def test_a_replica_that_was_changed_is_named(pool: Pool, spec: str) -> None:
    with pytest.raises(WorkerError, match=r"RX0605: replicas differ after iteration \d+: rank 1's parameter weight"):
        pool.run(train, 3, spec, True)


def test_where_all_may_differ_it_says_that_it_does_nothing(pool: Pool) -> None:
    for said in pool.run(train, 2, "dpsgd", False):
        assert said == ["check_every has no effect: by this plan all replicas may differ"]
