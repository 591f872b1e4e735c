"""A state saved by another number of workers: what would still have been added to the mean is kept."""

from __future__ import annotations

from typing import Any

import loops
import numpy as np
import pytest
import torch
from pool import Pool

SPECS = {
    "all": "relax gradients { compress = 2bit, feedback = both }",
    "ring": "relax gradients { compress = 2bit, feedback = both, route = ring }",
    "late": "relax gradients { compress = 4bit, feedback = both, delay = 1 }",
}
State = dict[str, Any]


def plain(state: State) -> State:
    """For the way to another process."""
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def saved_by(rank: int, workers: int, spec: str) -> State:
    model = loops.mlp(width=200)
    relaxed = loops.attach(spec, model)
    for t in range(3):
        model.zero_grad()
        loops.backward(model, rank, t)
    state = plain(relaxed.state_dict())
    relaxed.detach()
    return state


def loaded_by(rank: int, workers: int, spec: str, union: State) -> tuple[State, list[Any]]:
    """The state after loading, and the gradients of the iteration that follows."""
    model = loops.mlp(width=200)
    relaxed = loops.attach(spec, model)
    relaxed.load_state_dict({k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in union.items()})
    state = plain(relaxed.state_dict())
    loops.backward(model, rank, 3)
    after = [g.numpy() for g in loops.gradients(model)]
    relaxed.detach()
    return state, after


def whole(union: State, kind: str, name: str, workers: int) -> Any:
    return [union.get(f"{kind}/{name}/rank{r}") for r in range(workers)]


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize(("old", "new"), [(4, 2), (2, 3), (3, 1), (2, 2)])
def test_the_sum_that_is_still_owed_is_kept(pool: Pool, spec: str, old: int, new: int) -> None:
    before = {k: v for state in pool.run(saved_by, old, SPECS[spec]) for k, v in state.items()}
    answers = pool.run(loaded_by, new, SPECS[spec], before)
    after = {k: v for state, _ in answers for k, v in state.items()}
    names = [name for name, _ in loops.mlp(width=200).named_parameters()]
    assert after["workers"] == new and after["iterations"] == 3
    for name in names:
        mine, theirs = whole(before, "residual", name, old), whole(after, "residual", name, new)
        np.testing.assert_allclose(sum(theirs) / new, sum(mine) / old, rtol=1e-5, atol=1e-7)
        shares, dealt = whole(before, "owner", name, old), whole(after, "owner", name, new)
        assert (
            sum(s.size for s in dealt if s is not None)
            == sum(s.size for s in shares if s is not None)
            == theirs[0].size
        )
        # the owners' vector is one, whoever holds which part of it
        np.testing.assert_allclose(
            np.sort(np.concatenate([s for s in dealt if s is not None])),
            np.sort(np.concatenate([s for s in shares if s is not None])),
        )
    for rank in range(1, new):
        for mine, theirs in zip(answers[0][1], answers[rank][1], strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_a_union_that_lacks_a_worker_is_refused(pool: Pool) -> None:
    states = pool.run(saved_by, 3, SPECS["all"])
    half = {k: v for state in states[:2] for k, v in state.items()}
    for good, (kind, text) in pool.answers(loaded_by, 2, SPECS["all"], half):
        assert not good and kind == "ExchangeError"
        assert "RX0606" in text and "union of the state_dicts of all 3 workers" in text
