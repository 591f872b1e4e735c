"""The native engine without a compiler: which gradients it exchanges, and what it tells at the end of backward."""

from __future__ import annotations

from typing import Any

import plans_by_hand as by_hand
import pytest
import torch
from pool import Pool

from relaxc.attach.engine import make_engine
from relaxc.attach.groups import make_groups
from relaxc.attach.parameters import read_parameters
from relaxc.build.runtime import load_runtime
from relaxc.manifest import Manifest
from relaxc.schedule.schedule import make_schedule

pytestmark = pytest.mark.timeout(600)  # the first test may build the runtime
MATRICES = (">=", "ndim", 2)


class Watch:
    def on_wait(self, _seconds: float) -> None:
        """Nothing else can fail here."""

    def on_failure(self, iteration: int, bucket: int, peer: int, what: str) -> None:
        raise ConnectionError(f"iteration {iteration} bucket {bucket} peer {peer}: {what}")

    def refuse(self, code: str, message: str, help: str) -> None:
        raise ValueError(f"{code} {message} {help}")

    def on_broken(self, iteration: int) -> None:
        raise AssertionError(iteration)


def model_of() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(40, 30), torch.nn.Linear(30, 5))


def gradients_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def train(model: torch.nn.Module, rank: int, iteration: int) -> None:
    torch.manual_seed(10 * iteration + rank)
    model(torch.randn(3, 40)).square().sum().backward()


def engine_for(manifest: Manifest, model: torch.nn.Module) -> tuple[Any, Any]:
    groups, read = make_groups(None, 60), read_parameters(model)
    torch.distributed.barrier()  # before one leaves a group that another still connects to
    schedule = make_schedule(manifest, read.parameters, groups.workers, groups.rank)
    runtime = load_runtime()
    channel = runtime.Channel(groups.exchange)
    running = make_engine(runtime, by_hand.library(), manifest, read, schedule, groups, channel)
    return running.engine, schedule


def exchanged(rank: int, workers: int, manifest: Manifest) -> dict[str, Any]:
    torch.manual_seed(0)
    model, alone = model_of(), model_of()
    alone.load_state_dict(model.state_dict())
    engine, schedule = engine_for(manifest, model)
    told: list[dict[str, torch.Tensor]] = []
    engine.set_on_backward(lambda: told.append(gradients_of(model)))
    engine.start(Watch())
    result: dict[str, Any] = {"own": [], "got": []}
    for iteration in range(3):
        model.zero_grad()
        alone.zero_grad()
        train(model, rank, iteration)
        train(alone, rank, iteration)
        result["own"].append(gradients_of(alone))
        result["got"].append(gradients_of(model))
    engine.enabled = False
    train(model, rank, 3)
    engine.drain()
    result |= {"told": told, "iterations": engine.iterations, "fired": engine.fired(), "counters": engine.counters()}
    result["sent"] = schedule.sent_bytes
    engine.stop()
    train(model, rank, 4)  # the hooks are gone
    assert len(told) == 3
    return result


PLANS = {
    "dense": by_hand.manifest(by_hand.body(None, by_hand.exchange())),
    "coded": by_hand.manifest(by_hand.body(None, by_hand.exchange(codec=by_hand.EXACT)), piece_bytes=600),
    "ring": by_hand.manifest(by_hand.body(None, by_hand.exchange(codec=by_hand.EXACT, route="ring"))),
    "matrices only": by_hand.manifest(
        by_hand.body(MATRICES, by_hand.exchange()), by_hand.body(None, None, by_hand.program())
    ),
    "late": by_hand.manifest(by_hand.body(None, by_hand.exchange(codec=by_hand.EXACT), delay=1)),
    "nothing": by_hand.manifest(by_hand.body(None, None, by_hand.program())),
}


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("plan", PLANS)
def test_gradients(pool: Pool, plan: str, workers: int) -> None:
    answers = pool.run(exchanged, workers, PLANS[plan])
    for rank, answer in enumerate(answers):
        for iteration in range(3):
            expected = expected_of(plan, answers, rank, iteration)
            for name, value in answer["got"][iteration].items():
                torch.testing.assert_close(value, expected[name], rtol=1e-5, atol=1e-6)
                assert torch.equal(answer["told"][iteration][name], value)
        assert (answer["iterations"], answer["fired"]) == (3, [True] * 4)
        assert answer["counters"]["bytes_sent"] == 3 * answer["sent"]


def expected_of(plan: str, answers: list[dict[str, Any]], rank: int, iteration: int) -> dict[str, torch.Tensor]:
    own = answers[rank]["own"][iteration]
    back = 1 if plan == "late" else 0
    if iteration < back:
        return {name: torch.zeros_like(value) for name, value in own.items()}
    every = [answer["own"][iteration - back] for answer in answers]
    mean = {name: sum(e[name] for e in every) / len(every) for name in own}
    untouched = {"nothing": own, "matrices only": {n: v for n, v in own.items() if v.dim() < 2}}.get(plan, {})
    return mean | untouched


def raising(rank: int, _workers: int) -> tuple[str, int]:
    model = model_of()
    engine, _schedule = engine_for(PLANS["dense"], model)

    def refuse() -> None:
        raise ArithmeticError("no more")

    engine.set_on_backward(refuse)
    engine.start(Watch())
    with pytest.raises(ArithmeticError, match="no more"):
        train(model, rank, 0)
    engine.set_on_backward(None)
    train(model, rank, 1)
    engine.drain()
    engine.stop()
    return "raised", engine.iterations


def test_what_is_raised_at_the_end_of_backward_is_raised_by_backward(pool: Pool) -> None:
    assert pool.run(raising, 2) == [("raised", 2)] * 2


def absent(rank: int, _workers: int) -> list[bool]:
    """A parameter that no hook fires for is told as absent, whether it is exchanged or not."""
    model = model_of()
    engine, _schedule = engine_for(PLANS["nothing"], model)
    engine.start(Watch())
    model[0](torch.ones(1, 40)).sum().backward()
    fired: list[bool] = engine.fired()
    engine.stop()
    return fired


def test_who_had_a_gradient(pool: Pool) -> None:
    assert pool.run(absent, 1) == [[True, True, False, False]]
