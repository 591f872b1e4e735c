"""A state saved on other machines: leaders keep what their codes lose, so it goes to who leads now."""

from __future__ import annotations

import os
from typing import Any

import loops
import numpy as np
import pytest
import torch
from pool import Pool

from relaxc.schedule.schedule import layout_of
from relaxc.wire.ownership import shares

GRADIENTS = "relax gradients { compress = 2bit, feedback = both, route = hierarchy }"
PROGRAM = """
algorithm a { step  weight = mean(weight, compress = 2bit, feedback = both, route = hierarchy) }
relax with a
"""
SPECS = {"gradients": (GRADIENTS, "residual/{}/rank"), "program": (PROGRAM, "loss/0/{}/rank")}
"""With the key of a worker's losses."""
State = dict[str, Any]


def attach(spec: str, inner: int) -> tuple[Any, Any, Any]:
    os.environ["LOCAL_WORLD_SIZE"] = str(inner)
    model = loops.mlp(width=200)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    try:
        return model, optimizer, loops.plan(spec).attach(model, optimizer)
    finally:
        del os.environ["LOCAL_WORLD_SIZE"]


def plain(state: State) -> State:
    """For the way to another process."""
    return {k: v.numpy() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def saved_by(rank: int, workers: int, spec: str, inner: int) -> tuple[State, Any]:
    """And what the codec looks like."""
    model, optimizer, relaxed = attach(spec, inner)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    state = plain(relaxed.state_dict())
    relaxed.detach()
    return state, loops.plan(spec).manifest.bodies[0]


def loaded_by(rank: int, workers: int, spec: str, inner: int, union: State) -> tuple[State, list[Any]]:
    """The state after loading, and the weights after the iteration that follows."""
    model, optimizer, relaxed = attach(spec, inner)
    relaxed.load_state_dict({k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in union.items()})
    state = plain(relaxed.state_dict())
    loops.step(model, optimizer, rank, 3)
    relaxed.complete()
    after = [w.numpy() for w in loops.weights(model)]
    relaxed.detach()
    return state, after


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(
    ("old", "new"), [((4, 2), (6, 2)), ((6, 3), (4, 2)), ((4, 2), (4, 1)), ((4, 1), (4, 2)), ((4, 2), (4, 2))]
)
def test_what_leaders_owe_is_kept_and_only_by_leaders(
    pool: Pool, name: str, old: tuple[int, int], new: tuple[int, int]
) -> None:
    spec, key = SPECS[name]
    answers = pool.run(saved_by, old[0], spec, old[1])
    body = answers[0][1]
    exchange = body.gradient.exchange if body.gradient else body.program.transfers[0].exchange
    before = {k: v for state, _ in answers for k, v in state.items()}
    loaded = pool.run(loaded_by, new[0], spec, new[1], before)
    after = {k: v for state, _ in loaded for k, v in state.items()}
    for number, (parameter, tensor) in enumerate(loops.mlp(width=200).named_parameters()):
        mine = [before[key.format(parameter) + str(r)] for r in range(old[0])]
        theirs = [after[key.format(parameter) + str(r)] for r in range(new[0])]
        assert any(part.any() for part in mine)
        np.testing.assert_allclose(sum(theirs) / new[0], sum(mine) / old[0], rtol=1e-5, atol=1e-7)
        owned = shares(number, tensor.numel(), layout_of(exchange.codec), new[0])
        for rank, kept in enumerate(theirs):
            for owner, (start, end) in enumerate(owned):
                assert owner % new[1] == rank % new[1] or not kept[start:end].any()
        if old == new:
            for left, right in zip(mine, theirs, strict=True):
                np.testing.assert_array_equal(left, right)
    for rank in range(1, new[0]):
        for left, right in zip(loaded[0][1], loaded[rank][1], strict=True):
            np.testing.assert_array_equal(left, right)


def test_a_state_says_its_machines(pool: Pool) -> None:
    state, _ = pool.run(saved_by, 2, GRADIENTS, 2)[0]
    assert state["machines"].tolist() == [2]
