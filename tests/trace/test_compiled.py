"""torch.compile: a compiled function takes all its weights at once and gives all its gradients at once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from hand_clock import CLOCK
from torch import nn

from relaxc.schedule.profile_text import LATE, report
from relaxc.schedule.trace import trace
from relaxc.schedule.trace.estimate import Rates

X = torch.randn(4, 8)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Blocks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))

    def forward(self, x):
        return self.b(self.a(x))


def whole() -> nn.Module:
    return torch.compile(Blocks(), backend="aot_eager")


def in_place() -> nn.Module:
    model = Blocks()
    model.compile(backend="aot_eager")
    return model


@pytest.mark.parametrize("make", [whole, in_place])
def test_gradients_of_a_whole_model_are_late(make) -> None:
    profile = trace(make(), (X,), runs=2)
    assert profile.late_gradients and LATE in report(profile)
    assert profile.how == "recorded"
    assert profile.why == ("torch.fx: the model is compiled", "torch.export: the model is compiled")
    assert {p.ready for p in profile.parameters} == {profile.backward}
    assert {p.needed for p in profile.parameters} == {0}
    assert {p.module for p in profile.parameters} == {""}
    assert [p.name for p in profile.parameters] == [name for name, _ in Blocks().named_parameters()]


def test_a_model_that_runs_as_it_is_written_is_not_late() -> None:
    """This backend makes one graph of the forward only."""
    profile = trace(torch.compile(Blocks(), backend="eager"), (X,), runs=2)
    assert not profile.late_gradients and LATE not in report(profile)
    assert len({p.ready for p in profile.parameters}) == 6


def test_blocks_that_are_compiled_each() -> None:
    model = Blocks()
    model.b = torch.compile(model.b, backend="aot_eager")
    profile = trace(model, (X,), runs=2)
    assert not profile.late_gradients
    assert profile.why[0] == "torch.fx: module b is compiled"
    at = {p.name: p for p in profile.parameters}
    assert at["b.0.weight"].module == at["b.2.bias"].module == "b" and at["a.weight"].module == "a"
    assert at["a.weight"].needed < at["b.0.weight"].needed == at["b.2.bias"].needed
    assert max(at[f"b.{name}"].ready for name in ("0.weight", "0.bias", "2.weight", "2.bias")) < at["a.weight"].ready


def test_the_model_is_compiled_still() -> None:
    model = in_place()
    compiled = model._compiled_call_impl
    trace(model, (X,), runs=1)
    assert model._compiled_call_impl is compiled
    names = "CompiledFunctionBackward"
    assert names in str(model(X).sum().grad_fn.next_functions[0][0].name())


def test_an_estimate_runs_what_is_compiled_as_it_is_written() -> None:
    estimated, plain = (trace(m, (X,), rates=Rates(1.0, 1e30)) for m in (whole(), Blocks()))
    assert (estimated.forward, estimated.backward) == (plain.forward, plain.backward)
    assert estimated.late_gradients and {p.ready for p in estimated.parameters} == {plain.backward}


def test_a_checkpointed_module_keeps_its_name() -> None:
    from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

    model = Blocks()
    model.b = checkpoint_wrapper(model.b)
    profile = trace(model, (X,), clock=CLOCK, runs=1)
    assert [p.name for p in profile.parameters] == [name for name, _ in Blocks().named_parameters()]
    assert [p.module for p in profile.parameters] == ["a", "a", "b.0", "b.0", "b.2", "b.2"]
