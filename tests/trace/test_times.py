"""A trace's times against closed forms: models move the clock by hand, forward by 1, 2, 4 and backward by 8, 16, 32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hand_clock import CLOCK, Takes, takes
from torch import nn
from torch.utils.checkpoint import checkpoint

from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.trace import trace

X = torch.ones(3)


def traced(model: nn.Module, **options) -> Profile:
    return trace(model, (X,), clock=CLOCK, runs=3, **options)


def times(profile: Profile) -> dict[str, tuple[float | None, float | None]]:
    """When each gradient is ready and each weight needed."""
    return {p.name: (p.ready, p.needed) for p in profile.parameters}


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = Takes(1, 8), Takes(2, 16), Takes(4, 32)

    def forward(self, x):
        return self.c(self.b(self.a(x)))


CHAIN = {"a.weight": (56, 0), "b.weight": (48, 1), "c.weight": (32, 3)}


def test_a_chain() -> None:
    profile = traced(Chain())
    assert (profile.how, profile.why, profile.estimated, profile.late_gradients) == ("torch.fx", (), False, False)
    assert (profile.forward, profile.backward, profile.step, profile.device) == (7, 56, 0, "cpu")
    assert profile.iteration == 63
    assert profile.parameters[1] == ParameterTimes("b.weight", (), "f32", 48, 1, "b")
    assert times(profile) == CHAIN


def test_the_loss_belongs_to_forward_and_reads_no_weight() -> None:
    def loss(output):
        return takes(output, torch.tensor(1.0), 100, 1000).sum()

    profile = traced(Chain(), loss=loss)
    assert (profile.forward, profile.backward) == (107, 1056)
    assert times(profile) == {name: (ready + 1000, needed) for name, (ready, needed) in CHAIN.items()}


class Branching(Chain):
    def forward(self, x):
        x = self.a(x)
        if x.sum() > 0:
            x = self.b(x)
        return self.c(x)


def line_of(text: str) -> int:
    return next(n for n, line in enumerate(Path(__file__).read_text().splitlines(), 1) if text in line)


def test_control_flow_that_no_tracer_follows_is_recorded() -> None:
    profile = traced(Branching())
    assert profile.how == "recorded"
    assert times(profile) == CHAIN
    assert [p.module for p in profile.parameters] == ["a", "b", "c"]
    here = f"({__file__}:{line_of('if x.sum() > 0')})"
    assert [(reason.split(":")[0], here in reason) for reason in profile.why] == [
        ("torch.fx", True), ("torch.export", True),
    ]  # fmt: skip


def test_what_is_skipped_takes_no_part() -> None:
    profile = trace(Branching(), (-X,), clock=CLOCK, runs=2)
    assert times(profile) == {"a.weight": (40, 0), "b.weight": (None, None), "c.weight": (32, 1)}


class Twice(Chain):
    def forward(self, x):
        return self.a(self.b(self.a(x)))


def test_a_module_used_twice_is_needed_first_and_ready_last() -> None:
    assert times(traced(Twice())) == {"a.weight": (32, 0), "b.weight": (24, 1), "c.weight": (None, None)}


class Tied(Chain):
    def __init__(self) -> None:
        super().__init__()
        self.c = Takes(4, 32, self.a.weight)


def test_tied_weights_are_one_parameter() -> None:
    profile = traced(Tied())
    assert times(profile) == {"a.weight": (56, 0), "b.weight": (48, 1)}
    assert profile.parameters[0].module == "a"


class Detached(Chain):
    def forward(self, x):
        return self.c(self.a(x) + self.b(x).detach())


def test_a_weight_that_is_read_without_a_gradient_is_needed() -> None:
    assert times(traced(Detached())) == {"a.weight": (40, 0), "b.weight": (None, 1), "c.weight": (32, 3)}


def test_a_frozen_parameter_is_none_of_the_exchange() -> None:
    model = Chain()
    model.b.weight.requires_grad_(False)
    assert times(traced(model)) == {"a.weight": (56, 0), "c.weight": (32, 3)}


class Checkpointed(Chain):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant

    def forward(self, x):
        return self.c(checkpoint(self.b, self.a(x), use_reentrant=self.reentrant))


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpointed_block_runs_again_in_backward(reentrant: bool) -> None:
    profile = traced(Checkpointed(reentrant))
    assert (profile.forward, profile.backward) == (7, 58)
    assert times(profile) == {"a.weight": (58, 0), "b.weight": (50, 1), "c.weight": (32, 3)}


class ReadsAhead(Chain):
    """Its graph, with stand-ins for tensors, is another than that of its forward."""

    def forward(self, x):
        if isinstance(x, torch.fx.Proxy):
            return self.c(self.a(x))
        return self.c(self.b(self.a(x)))


class ReadsInTurn(Chain):
    def forward(self, x):
        if isinstance(x, torch.fx.Proxy):
            return self.c(self.a(self.b(x)))
        return self.c(self.b(self.a(x)))


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (ReadsAhead, "torch.fx: its graph does not read b.weight, and the model does"),
        (ReadsInTurn, "torch.fx: its graph reads b.weight before a.weight, and the model after it"),
    ],
)
def test_a_graph_of_something_else_is_not_believed(model: type[Chain], reason: str) -> None:
    profile = traced(model())
    assert profile.how != "torch.fx" and profile.why[0] == reason


class Keyword(Chain):
    def forward(self, x, *, twice=None, where=None):
        return self.c(self.b(self.a(x if twice is None else 2 * x)))


def test_named_arguments_and_defaults() -> None:
    model = Keyword()
    for sample in ({"x": X}, {"x": X, "where": "here"}):
        profile = trace(model, sample, clock=CLOCK, runs=2)
        assert times(profile) == CHAIN


class Own(nn.Module):
    """Reads what is of `a` and `b` itself, and calls neither."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False)
        self.slow, self.last = Takes(4, 4), Takes(2, 2)

    def forward(self, x):
        x = x.reshape(self.b.weight.shape[0]).to(self.b.weight.dtype)
        x = self.last(nn.functional.linear(self.slow(x), self.a.weight))
        return nn.functional.linear(x, self.b.weight)


@pytest.mark.parametrize("how", ["torch.fx", "recorded"])
def test_functions_that_read_weights_and_shapes_that_do_not(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxc.schedule.trace import profiling

    if how == "recorded":
        monkeypatch.setattr(profiling, "TRACERS", ())
    profile = traced(Own())
    assert profile.how == how
    assert times(profile) == {"a.weight": (2, 4), "b.weight": (0, 6), "slow.weight": (6, 0), "last.weight": (2, 4)}
    assert [p.module for p in profile.parameters] == ["", "", "slow", "last"]


class Scripted(nn.Module):
    """Reads its weights by no function of torch that can be heard, and takes no hooks."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = Takes(1, 8), nn.Sequential(torch.jit.script(nn.Linear(3, 3)))

    def forward(self, x):
        if self.first(x).sum() > 0:
            x = self.first(x)
        return self.last(x)


def test_a_weight_that_nobody_was_heard_to_read_is_needed_where_its_module_begins() -> None:
    profile = traced(Scripted())
    assert profile.how == "recorded"
    assert times(profile) == {"first.weight": (8, 0), "last.0.weight": (0, 2), "last.0.bias": (0, 2)}
    assert [p.module for p in profile.parameters] == ["first", "last", "last"]


class Attributes(Chain):
    """Keeps what it computed, and counts."""

    def __init__(self) -> None:
        super().__init__()
        self.kept, self.calls = None, 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        self.kept = self.a(x)
        self.seen += 1
        self.seen = self.seen + torch.rand(())
        return self.c(self.b(nn.functional.dropout(self.kept, 0.5, self.training)))


def test_the_model_is_left_as_it_was() -> None:
    import random

    import numpy as np

    model = Attributes().eval()
    model.b.train()
    model.a.weight.grad = given = torch.tensor(7.0)
    hooks = []
    model.b.register_forward_hook(lambda *_: hooks.append("called"))
    before, modes = {k: v.clone() for k, v in model.state_dict().items()}, [m.training for m in model.modules()]
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    seen = model.seen
    with torch.no_grad():
        trace(model, (X,), runs=2)
        assert not torch.is_grad_enabled()
    assert {k: v.tolist() for k, v in model.state_dict().items()} == {k: v.tolist() for k, v in before.items()}
    assert (model.kept, model.calls, model.seen is seen) == (None, 0, True)
    assert [m.training for m in model.modules()] == modes
    assert model.a.weight.grad is given and given.item() == 7 and model.b.weight.grad is None
    assert not any(m._forward_pre_hooks for m in model.modules()) and len(model.b._forward_hooks) == 1
    assert not any(p._post_accumulate_grad_hooks for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), drawn[0]) and random.getstate() == drawn[1]
    assert np.random.get_state()[1].tolist() == drawn[2]  # noqa: NPY002
    assert hooks  # it ran


class Moved(Chain):
    def forward(self, x):
        with torch.no_grad():
            self.a.weight.add_(1)
        return super().forward(x)


def test_weights_that_forward_changes_are_put_back() -> None:
    model = Moved()
    assert trace(model, (X,), runs=2).forward > 0
    assert model.a.weight.item() == 1.5


class Modes(Chain):
    def forward(self, x):
        return self.c(self.b(x) if self.training else self.a(x))


def test_it_is_training_that_is_traced() -> None:
    assert [p.needed for p in traced(Modes().eval()).parameters] == [None, 0, 2]
