"""`check_every` compares replicas where they must be identical, when their weights are complete."""

from __future__ import annotations

from pathlib import Path

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


def attach_in_parts(rank: int, workers: int, folder: str) -> list[str]:
    import warnings

    import torch

    import relaxc

    model = torch.nn.Linear(5, 3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        relaxc.compile(f"{folder}/apart.relax").attach(
            model, torch.optim.SGD(model.parameters(), 0.1), timeout=30
        ).detach()
    return [str(w.message) for w in said]


def corrected_over(rank: int, workers: int, folder: str, topology: str) -> list[str]:
    import warnings

    import torch

    import relaxc
    from relaxc.errors import RelaxError

    model = torch.nn.Linear(5, 3)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            plan = relaxc.compile(Path(f"{folder}/{topology}.relax"))
            plan.attach(model, torch.optim.SGD(model.parameters(), 0.1), timeout=30).detach()
        except RelaxError as error:
            return [error.code]
    return [str(w.message) for w in said]


def test_disagreements_that_never_die_out_or_grow(pool: Pool, tmp_path: Path) -> None:
    """D2 over four workers: exactly at its bound on a ring, beyond it on a graph of two who swap, and well on both
    lazily."""
    (tmp_path / "swaps").write_text("0 1 0.9\n1 2 0.1\n2 3 0.9\n")
    for name, topology in (("ring", "ring"), ("swaps", 'edges("swaps")'), ("lazy", "lazy(ring)")):
        (tmp_path / f"{name}.relax").write_text(f"relax with d2 {{ topology = {topology} }}\n")
    (said, *others) = pool.run(corrected_over, 4, str(tmp_path), "ring")
    assert len(said) == 1 and "use lazy(ring)" in said[0] and others == [[], [], []]
    assert pool.run(corrected_over, 4, str(tmp_path), "swaps") == [["RX0370"]] * 4
    assert pool.run(corrected_over, 4, str(tmp_path), "lazy") == [[]] * 4
    assert pool.run(corrected_over, 3, str(tmp_path), "ring") == [[]] * 3


def test_workers_that_never_hear_of_each_other_are_told(pool: Pool, tmp_path: Path) -> None:
    (tmp_path / "pairs").write_text("0 1\n2 3\n")
    (tmp_path / "apart.relax").write_text('relax with dpsgd { topology = edges("pairs") }\n')
    said = pool.run(attach_in_parts, 4, str(tmp_path))
    assert said == [
        ["edges(2 edges) never connects all 4 workers: what some of them know never reaches the others"], [], [], []
    ]  # fmt: skip
