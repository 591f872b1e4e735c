"""state_dict of programs: the same bits as not stopping; another number of workers by the stated rule."""

from __future__ import annotations

import copy
import io
from typing import Any

import loops
import pytest
import torch
from pool import Pool
from torch import nn

SPECS = {
    "ahead": "relax with dpsgd",
    "adapt": "relax with dpsgd_atc { topology = random_pairs }",
    "choco": "relax with choco { compress = qsgd(4) }",
    "late": "relax weights { every = 3, delay = 2 }",
    "followed": "relax with moniqua { compress = modulo(8bit, unit = auto) }",
    "momentum": "relax momentum { warmup = 3, compress = 1bit }",
    "streaming": """
algorithm streaming(period = 3, late = 2) {
  state anchor = weight
  state speed = 0
  step
  every staggered(period) {
    let drift = mean(anchor - weight, compress = 4bit)
    let rate = lr * 2
    after late { speed = 0.5 * speed + drift  anchor -= rate * speed  weight = (weight + anchor) / 2 }
  }
}
relax with streaming
""",
    "numbers": """
algorithm numbers { state rates = 0  state gap = 1  state rounds = 0  step
  rates += lr
  every gap { weight = mix(weight, ring) * (1 - rates / 1000)  rounds += 1  gap = 2 ^ floor(rounds / 2) } }
relax with numbers
""",
    "tracking": """
algorithm tracking { state track = 0  state last = 0
  track = mix(track, ring) + grad - last
  last = grad
  grad = track
  step }
relax with tracking
""",
    "both": 'relax gradients for "*.bias" { compress = 8bit, feedback = both, delay = 1 }\nrelax with choco',
    "low rank": "relax gradients { compress = lowrank(2) }",
    "low rank updates": "relax updates { every = 2, compress = lowrank(2) }",
    "low rank momentum": "relax momentum { warmup = 3, compress = lowrank(2) }",
    "geometric": "relax with swarm_blocking { period = geometric(2) }",
    "norm": "algorithm n { state size = 1  step  weight = mix(weight, ring) / size * size  size = norm(weight) }\nrelax with n",
    "pushed": "relax with sgp { topology = exponential }",
    "pushed late": "relax with osgp { late = 2 }",
    "relay": "relax with relaysgd",
    "relay late": """
algorithm r { state first = weight  step
  every 2 { let all_of_it = relay(weight - first, star)  let heard = relay(norm(weight) / 10, chain)
    after 3 { weight += 0.1 * (all_of_it / (workers + heard) - (weight - first)) } } }
relax with r
""",
    "many late": """
algorithm many { step  let half = weight / 2  every 2 { let m = mix(weight, ring)
  after 3 { weight += (m - 2 * half) / 8 } } }
relax with many
""",
}


def kit(spec: str, seed: int = 0) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = loops.mlp(seed)
    if "momentum" in spec:
        return model, torch.optim.SGD(model.parameters(), lr=0.01)
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def through_a_file(value: Any) -> Any:
    """As a user's checkpoint; weights_only refuses anything but tensors and plain values."""
    file = io.BytesIO()
    torch.save(value, file)
    return torch.load(io.BytesIO(file.getvalue()), weights_only=True)


def resumed(rank: int, workers: int, spec: str, stop: int) -> None:
    """A model that has trained on something else, or not at all, takes up the saved state, in either order of loading."""
    model, optimizer = kit(spec)
    relaxed = loops.plan(spec).attach(model, optimizer)
    for t in range(stop):
        loops.step(model, optimizer, rank, t)
    saved = through_a_file(
        {"relaxed": relaxed.state_dict(), "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    )
    assert all(isinstance(v, (torch.Tensor, int, float)) for v in saved["relaxed"].values())
    for t in range(stop, 9):
        loops.step(model, optimizer, rank, t)
    relaxed.complete()
    for plan_first, trained in ((False, 2), (True, 2), (False, 0), (True, 0)):
        other, again = kit(spec, seed=5)
        taken_up = loops.plan(spec).attach(other, again)
        for t in range(trained):
            loops.step(other, again, rank, 99 + t)
        if plan_first:
            taken_up.load_state_dict(saved["relaxed"])
        other.load_state_dict(saved["model"])
        again.load_state_dict(copy.deepcopy(saved["optimizer"]))  # it would train in the saved tensors
        if not plan_first:
            taken_up.load_state_dict(saved["relaxed"])
        for t in range(stop, 9):
            loops.step(other, again, rank, t)
        taken_up.complete()
        loops.same(loops.weights(other), loops.weights(model))
        left, right = taken_up.state_dict(), relaxed.state_dict()
        assert left.keys() == right.keys()
        for key, value in left.items():
            assert torch.equal(torch.as_tensor(value), torch.as_tensor(right[key])), key
        taken_up.detach()
    relaxed.detach()


@pytest.mark.parametrize("stop", [0, 4, 5])
@pytest.mark.parametrize("name", SPECS)
def test_the_same_bits_as_not_stopping(pool: Pool, name: str, stop: int) -> None:
    pool.run(resumed, 3 if name.startswith("relay") else 2, SPECS[name], stop)


def one_saves(rank: int, workers: int) -> None:
    model, optimizer = kit("")
    relaxed = loops.plan(SPECS["adapt"]).attach(model, optimizer)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
        if rank == 1:
            relaxed.state_dict()
            relaxed.residual_norms()
            model.state_dict()
    relaxed.complete()
    everyone = loops.everywhere(loops.weights(model), workers)
    loops.same(everyone[0], everyone[1])
    relaxed.detach()


def test_saving_on_one_worker_only(pool: Pool) -> None:
    pool.run(one_saves, 2)


def saved_by(rank: int, workers: int) -> dict[str, Any]:
    model, optimizer = kit("")
    relaxed = loops.plan(SPECS["choco"]).attach(model, optimizer)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    saved = relaxed.state_dict()
    relaxed.detach()
    return saved


def taken_up_by(rank: int, workers: int, union: dict[str, Any]) -> dict[str, Any]:
    model, optimizer = kit("")
    relaxed = loops.plan(SPECS["choco"]).attach(model, optimizer)
    relaxed.load_state_dict(union)
    found = relaxed.state_dict()
    for t in range(3, 5):
        loops.step(model, optimizer, rank, t)
    relaxed.detach()
    return found


def test_another_number_of_workers(pool: Pool) -> None:
    """What is local is averaged; control goes on where it was."""
    states = pool.run(saved_by, 2)
    union = {key: value for state in states for key, value in state.items()}
    for rank, found in enumerate(pool.run(taken_up_by, 3, union)):
        for name in ("seen", "around"):
            key = f"state/{name}/0.weight/rank"
            wanted = (states[0][f"{key}0"].double() + states[1][f"{key}1"].double()) / 2
            torch.testing.assert_close(found[f"{key}{rank}"].double(), wanted, rtol=1e-6, atol=1e-7)
        assert found[f"control/0.weight/t/rank{rank}"] == 3


def relayed_by(rank: int, workers: int, union: dict[str, Any] | None) -> tuple[dict[str, Any], float]:
    """The state after some iterations, and what the first one leaves of the first parameter's first element."""
    model, optimizer = kit("")
    relaxed = loops.plan(COUNTED).attach(model, optimizer)
    if union is not None:
        relaxed.load_state_dict(union)
    loops.step(model, optimizer, rank, 3)
    relaxed.complete()
    first = float(relaxed.state_dict()[f"state/heard/0.weight/rank{rank}"])
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    saved = relaxed.state_dict()
    relaxed.detach()
    return saved, first


COUNTED = """
algorithm counted { state heard = 0  step  heard = relay(1, chain)  weight = relay(weight, chain) / heard }
relax with counted
"""


def test_relays_begin_anew_among_another_number_of_workers(pool: Pool) -> None:
    """At first a worker hears its neighbours; of the old workers, in time everyone."""
    states = pool.run(relayed_by, 4, None)
    assert [first for _, first in states] == [2, 3, 3, 2]
    assert [float(s[f"state/heard/0.weight/rank{rank}"]) for rank, (s, _) in enumerate(states)] == [4, 4, 4, 4]
    union = {key: value for state, _ in states for key, value in state.items()}
    assert {"relay/0.2/0.weight/rank1", "relay/1.1/0.weight/rank2"} <= union.keys()
    assert "relay/0.2/0.weight/rank0" not in union
    assert [first for _, first in pool.run(relayed_by, 3, union)] == [2, 3, 2]
    assert [first for _, first in pool.run(relayed_by, 4, union)] == [4, 4, 4, 4]


def refusals(rank: int, workers: int) -> None:
    model, optimizer = kit("")
    relaxed = loops.plan(SPECS["choco"]).attach(model, optimizer)
    good = relaxed.state_dict()
    bare = {k: v for k, v in good.items() if not k.startswith("state/")}
    key = f"state/seen/0.weight/rank{rank}"
    cases = {
        "has no state/": bare,
        "no place": {**good, "state/other/0.weight/rank0": torch.zeros(3)},
        "elements in the state": {**good, key: torch.zeros(3)},
    }
    for sentence, bad in cases.items():
        assert sentence in loops.refused("RX0606", lambda bad=bad: relaxed.load_state_dict(bad)), sentence
    relaxed.load_state_dict(good)
    relaxed.detach()
    exact = loops.plan(loops.EXACT).attach(model, optimizer)
    assert "no place" in loops.refused("RX0606", lambda: exact.load_state_dict(good))
    exact.detach()


def test_states_that_do_not_fit(pool: Pool) -> None:
    pool.run(refusals, 2)


def midway(rank: int, workers: int) -> None:
    model, optimizer = kit("")
    relaxed = loops.plan(SPECS["tracking"]).attach(model, optimizer)
    loops.backward(model, rank, 0)
    assert "after optimizer.step()" in loops.refused("RX0615", relaxed.state_dict)
    optimizer.step()
    relaxed.state_dict()
    relaxed.detach()


def test_in_the_middle_of_an_iteration(pool: Pool) -> None:
    pool.run(midway, 2)
