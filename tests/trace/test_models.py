"""Models as people write them: which tracer follows each, and the order of weights and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch
from profile_orders import by_gradient, by_need, sound
from torch import nn

from relaxc.schedule.trace import trace


def test_an_mlp() -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 4))
    profile = trace(model, (torch.randn(4, 8),), runs=3)
    assert (profile.how, by_need(profile), by_gradient(profile)) == ("torch.fx", ["0", "2", "4"], ["4", "2", "0"])
    assert sound(profile) and profile.step > 0 and not profile.late_gradients
    assert [(p.name, p.shape, p.dtype) for p in profile.parameters[:2]] == [
        ("0.weight", (16, 8), "f32"), ("0.bias", (16,), "f32"),
    ]  # fmt: skip


def test_a_slow_layer_is_seen_in_the_gaps() -> None:
    """2^29 multiplications in the middle layer, at most 2^21 in the others."""
    widths = (8, 8, 2048, 2048, 8, 8)
    model = nn.Sequential(*(nn.Linear(*sides) for sides in itertools.pairwise(widths)))
    profile = trace(model, (torch.randn(128, 8),), runs=5)
    at = {p.name: p for p in profile.parameters}
    needed, ready = [at[f"{i}.weight"].needed for i in range(5)], [at[f"{i}.weight"].ready for i in range(5)]
    assert needed[3] - needed[2] > 3 * (needed[1] - needed[0])
    assert ready[2] - ready[3] > 3 * (ready[3] - ready[4])


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.norm(self.conv(x)).relu().mean((2, 3)))


def test_a_cnn_with_statistics() -> None:
    model = Cnn()
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    profile = trace(model, (torch.randn(4, 3, 9, 9),), runs=3)
    assert (profile.how, by_need(profile)) == ("torch.fx", ["conv", "norm", "head"])
    assert by_gradient(profile) == ["head", "norm", "conv"] and sound(profile)
    assert all(torch.equal(before[name], buffer) for name, buffer in model.named_buffers())


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.blocks = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)
        self.head = nn.Linear(16, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))


def test_a_transformer_with_a_tied_embedding() -> None:
    profile = trace(Transformer(), (torch.randint(0, 50, (2, 7)),), runs=3)
    assert profile.how == "torch.export" and profile.why[0].startswith("torch.fx: TraceError: ")
    block = ["self_attn", "norm1", "linear1", "linear2", "norm2"]
    assert by_need(profile) == ["embed", *(f"blocks.layers.{i}.{part}" for i in range(2) for part in block)]
    assert by_gradient(profile)[-1] == "embed" and sound(profile)
    assert "head.weight" not in {p.name for p in profile.parameters}


class Deciding(nn.Module):
    """How often the middle runs, its input says."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x):
        x = self.first(x)
        for _ in range(int(x.abs().sum().clamp(1, 3).item())):
            x = self.middle(x)
        return self.last(x)


def test_data_dependent_control_flow() -> None:
    profile = trace(Deciding(), (torch.randn(2, 4),), runs=3)
    assert profile.how == "recorded" and len(profile.why) == 2 and all(__file__ in reason for reason in profile.why)
    assert by_need(profile) == ["first", "middle", "last"] and sound(profile)
    assert by_gradient(profile) == ["last", "middle", "first"]


class Lstm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm, self.head = nn.Embedding(20, 8), nn.LSTM(8, 8, 2, batch_first=True), nn.Linear(8, 20)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0])


@pytest.mark.parametrize("how", ["torch.fx", "recorded"])
def test_an_lstm(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxc.schedule.trace import profiling

    if how == "recorded":
        monkeypatch.setattr(profiling, "TRACERS", ())
    profile = trace(Lstm(), (torch.randint(0, 20, (2, 5)),), runs=3)
    assert (profile.how, by_need(profile)) == (how, ["embed", "lstm", "head"])
    assert by_gradient(profile) == ["head", "lstm", "embed"] and sound(profile)
    assert len(profile.parameters) == 11


@pytest.mark.parametrize("reentrant", [True, False])
def test_accumulated_outputs_of_any_form(reentrant: bool) -> None:
    """A checkpointed block in a model that returns a mapping of tuples."""
    from torch.utils.checkpoint import checkpoint

    class Nested(Cnn):
        def forward(self, x):
            x = checkpoint(self.norm, self.conv(x), use_reentrant=reentrant)
            return {"mean": (self.head(x.mean((2, 3))), "a word"), "most": [x.amax((2, 3))]}

    profile = trace(Nested(), (torch.randn(4, 3, 9, 9),), runs=3)
    assert by_need(profile) == ["conv", "norm", "head"] and by_gradient(profile) == ["head", "norm", "conv"]


def test_half_precision_in_autocast() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        profile = trace(nn.Sequential(nn.Linear(8, 8), nn.Linear(8, 8)), (torch.randn(4, 8),), runs=2)
    assert by_need(profile) == ["0", "1"] and sound(profile)
    double = trace(nn.Linear(8, 8).double(), (torch.randn(4, 8).double(),), runs=2)
    assert [p.dtype for p in double.parameters] == ["f64", "f64"]
