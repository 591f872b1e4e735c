"""What a loop does to weights between optimizer.step() and the next forward counts, or is refused: never undone in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import loops
import pytest
import torch
from pool import Pool
from torch import nn

from relaxc.errors import ExchangeError

BEGUN = "relax with dpsgd"
LATE = "relax with dpsgd_atc"
BOTH = "algorithm both { weight = mix(weight, ring)  step  weight = mix(weight, star) }\nrelax with both"


def attached(spec: str, model: nn.Module, lr: float = 0.1, **more: Any) -> tuple[Any, torch.optim.SGD]:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr)
    return loops.plan(spec).attach(model, optimizer, timeout=20, **more), optimizer


def clamp(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-0.01, 0.01)


def edited(rank: int, workers: int, spec: str, complete: bool) -> None:
    model = loops.mlp()
    relaxed, optimizer = attached(spec, model)
    loops.step(model, optimizer, rank, 0)
    if complete:
        relaxed.complete()
    clamp(model)
    if complete:
        loops.step(model, optimizer, rank, 1)
        relaxed.complete()
        assert max(float(w.abs().max()) for w in loops.weights(model)) < 0.2
        relaxed.detach()
    else:
        sentence = loops.refused("RX0619", lambda: loops.step(model, optimizer, rank, 1))
        assert "were changed in place after this iteration's exchange had begun" in sentence


@pytest.mark.parametrize(("spec", "complete"), [(BEGUN, False), (LATE, False), (LATE, True)])
def test_an_edit_behind_the_step(pool: Pool, spec: str, complete: bool) -> None:
    pool.run(edited, 2, spec, complete)


def edited_before_the_step(rank: int, workers: int, spec: str, refuses: bool) -> None:
    model = loops.mlp()
    relaxed, optimizer = attached(spec, model)
    loops.backward(model, rank, 0)
    clamp(model)
    if refuses:
        loops.refused("RX0619", optimizer.step)
    else:
        optimizer.step()
        relaxed.complete()
        assert max(float(w.abs().max()) for w in loops.weights(model)) < 0.2
        relaxed.detach()


@pytest.mark.parametrize(("spec", "refuses"), [(BEGUN, True), ("relax with sgp", False), (LATE, False)])
def test_an_edit_before_the_step(pool: Pool, spec: str, refuses: bool) -> None:
    """Where only states have left by then, as sgp's mass has, weights may change."""
    pool.run(edited_before_the_step, 2, spec, refuses)


def edited_in_hook(rank: int, workers: int) -> None:
    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_post_hook(lambda *_: clamp(model))
    relaxed = loops.plan(BEGUN).attach(model, optimizer, timeout=20)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    assert max(float(w.abs().max()) for w in loops.weights(model)) <= 0.01
    loops.step(model, optimizer, rank, 3)
    relaxed.detach()


def test_an_edit_in_a_hook_of_the_step(pool: Pool) -> None:
    pool.run(edited_in_hook, 2)


def trained(rank: int, spec: str, meanwhile: Callable[[Any, nn.Module], None]) -> list[torch.Tensor]:
    model = loops.mlp()
    relaxed, optimizer = attached(spec, model)
    for t in range(4):
        loops.step(model, optimizer, rank, t)
        meanwhile(relaxed, model)
    relaxed.complete()
    relaxed.detach()
    return loops.weights(model)


def swapped(rank: int, workers: int, spec: str) -> None:
    def swap(relaxed: Any, model: nn.Module) -> None:
        with relaxed.swap():
            own = loops.weights(model)
            clamp(model)
            model.eval()
            loops.loss(model, loops.batch(rank, 9))
            with torch.no_grad():
                for parameter, weight in zip(model.parameters(), own, strict=True):
                    parameter.copy_(weight)
            model.train()

    def look(relaxed: Any, model: nn.Module) -> None:
        with relaxed.consensus(), torch.no_grad():
            loops.loss(model, loops.batch(rank, 9))

    def nothing(_relaxed: Any, _model: nn.Module) -> None:
        pass

    plain = trained(rank, spec, nothing)
    loops.same(trained(rank, spec, swap), plain)
    loops.same(trained(rank, spec, look), plain)


@pytest.mark.parametrize("spec", [BEGUN, LATE, BOTH])
def test_a_swap_and_an_evaluation_change_nothing(pool: Pool, spec: str) -> None:
    pool.run(swapped, 4, spec)


def evaluated_alone(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed, optimizer = attached(BOTH, model)
    for t in range(2):
        loops.step(model, optimizer, rank, t)
    if rank == 0:
        with torch.no_grad():
            loops.loss(model, loops.batch(rank, 9))
    relaxed.detach()


def test_an_evaluation_on_one_worker_begins_nothing(pool: Pool) -> None:
    pool.run(evaluated_alone, 2, timeout=15)


def loaded_first(rank: int, workers: int, spec: str) -> None:
    """Weights that are loaded before the first iteration are those that states begin from."""
    model = loops.mlp()
    relaxed, optimizer = attached(spec, model, lr=0.0)
    model.load_state_dict({key: torch.full_like(value, 5.0) for key, value in model.state_dict().items()})
    for t in range(2):
        loops.step(model, optimizer, rank, t)
    relaxed.complete()
    for weight in loops.weights(model):
        torch.testing.assert_close(weight, torch.full_like(weight, 5.0))
    relaxed.detach()


@pytest.mark.parametrize(
    "spec", ["relax with dcd_psgd", "relax with diloco { period = 1 }", "relax updates { every = 1 }"]
)
def test_weights_loaded_before_the_first_iteration(pool: Pool, spec: str) -> None:
    pool.run(loaded_first, 2, spec)


def loaded_later(rank: int, workers: int) -> list[str]:
    import warnings

    model = loops.mlp()
    relaxed, optimizer = attached("relax with diloco { period = 2 }", model)
    loops.step(model, optimizer, rank, 0)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.load_state_dict(model.state_dict())
    relaxed.detach()
    return [str(w.message) for w in said]


def test_weights_loaded_later_are_warned_of(pool: Pool) -> None:
    for said in pool.run(loaded_later, 2):
        assert len(said) == 1 and "load relaxed.state_dict() with them" in said[0]


class Inheriting(torch.optim.SGD):
    def step(self, closure: Any = None) -> Any:
        return super().step(closure)


def inherited(rank: int, workers: int, spec: str) -> None:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)  # by which torch wraps the base's step too
    found = []
    for kind in (torch.optim.SGD, Inheriting):
        model = loops.mlp()
        optimizer = kind(model.parameters(), lr=0.1)
        relaxed = loops.plan(spec).attach(model, optimizer, timeout=20)
        for t in range(4):
            loops.step(model, optimizer, rank, t)
        relaxed.complete()
        assert relaxed.stats()["iterations"] == 4
        found.append(loops.weights(model))
        relaxed.detach()
    loops.same(*found)


@pytest.mark.parametrize("spec", ["relax with one_bit_adam { warmup = 2 }", "relax gradients", LATE])
def test_a_step_that_calls_its_bases(pool: Pool, spec: str) -> None:
    pool.run(inherited, 2, spec)


def tried_again(rank: int, workers: int, fails: bool) -> list[torch.Tensor]:
    """A hook of the user's raises once; the step is then tried again."""
    model = loops.mlp()
    relaxed, optimizer = attached(
        "algorithm t { state m = 0  m = 0.9 * m + mean(grad)  weight -= lr * m }\nrelax with t", model
    )
    broken = [fails]

    def fail(*_: Any) -> None:
        if broken.pop() if broken else False:
            raise RuntimeError("a mistake in the user's hook")

    optimizer.register_step_pre_hook(fail)
    for t in range(3):
        optimizer.zero_grad()
        loops.backward(model, rank, t)
        try:
            optimizer.step()
        except RuntimeError:
            optimizer.step()
    relaxed.complete()
    relaxed.detach()
    return loops.weights(model)


def both_ways(rank: int, workers: int) -> None:
    loops.same(tried_again(rank, workers, True), tried_again(rank, workers, False))


def test_a_step_that_is_tried_again(pool: Pool) -> None:
    pool.run(both_ways, 2)


def other_optimizer(rank: int, workers: int) -> None:
    model = loops.mlp()
    _relaxed, optimizer = attached(LATE, model)
    loops.step(model, optimizer, rank, 0)
    stranger = torch.optim.SGD(model.parameters(), lr=0.1)
    loops.refused("RX0621: gradients were dropped", lambda: [loops.step(model, stranger, rank, t) for t in (1, 2)])


def perturbed(rank: int, workers: int) -> None:
    """Sharpness-aware minimisation, its first pass outside no_sync()."""
    model = loops.mlp()
    _relaxed, optimizer = attached(LATE, model)
    loops.step(model, optimizer, rank, 0)
    optimizer.zero_grad(set_to_none=False)
    loops.backward(model, rank, 1)
    clamp(model)
    loops.refused("RX0620", lambda: loops.backward(model, rank, 1))


def test_weights_that_change_between_two_passes(pool: Pool) -> None:
    pool.run(perturbed, 2)


def test_a_step_of_an_optimizer_that_attach_never_saw(pool: Pool) -> None:
    pool.run(other_optimizer, 2)


def laid_out_anew(rank: int, workers: int) -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Flatten())
    _relaxed, optimizer = attached(BEGUN, model, lr=0.0)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model(torch.randn(2, 3, 8, 8)).sum().backward()
    loops.refused("RX0409", optimizer.step)


def test_weights_laid_out_anew(pool: Pool) -> None:
    pool.run(laid_out_anew, 2)


def regrouped(rank: int, workers: int) -> None:
    model = loops.mlp()
    _relaxed, optimizer = attached("algorithm s { weight -= lr * mean(grad) }\nrelax with s", model)
    loops.step(model, optimizer, rank, 0)
    moved = optimizer.param_groups[0]["params"].pop()
    optimizer.add_param_group({"params": [moved], "lr": 0.0})
    loops.refused("RX0418", lambda: loops.step(model, optimizer, rank, 1))


def test_parameter_groups_changed(pool: Pool) -> None:
    pool.run(regrouped, 2)


def dropped(rank: int, workers: int) -> None:
    model = loops.mlp()
    relaxed, optimizer = attached(LATE, model)
    with relaxed.no_sync():
        loops.backward(model, rank, 0)
    optimizer.zero_grad()
    loops.step(model, optimizer, rank, 1)
    relaxed.complete()
    assert relaxed.stats()["iterations"] == 1
    loops.backward(model, rank, 2)
    optimizer.zero_grad()
    loops.refused("RX0621", lambda: loops.backward(model, rank, 3))


def test_gradients_that_are_dropped(pool: Pool) -> None:
    pool.run(dropped, 2)


def apart(rank: int, workers: int) -> str:
    """Worker 1 leaves out a step, and keeps its gradients."""
    model = loops.mlp()
    _relaxed, optimizer = attached(LATE, model)
    try:
        for t in range(6):
            model.zero_grad(set_to_none=False)
            loops.backward(model, rank, t)
            if not (rank == 1 and t == 1):
                optimizer.step()
        model.state_dict()
    except ExchangeError as error:
        return error.code
    return "nothing"


def test_a_step_left_out_by_hand_ends_in_an_error(pool: Pool) -> None:
    """Messages of different iterations never meet: the worker that is ahead at the end waits in vain, and says so."""
    assert pool.run(apart, 2, timeout=60) == ["RX0603", "nothing"]
