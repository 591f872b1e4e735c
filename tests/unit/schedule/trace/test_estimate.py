"""Estimates in closed form: two operations a second, or a byte a second, whichever takes longer."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from relaxc.errors import ModelError
from relaxc.schedule.profile import Profile
from relaxc.schedule.trace import trace
from relaxc.schedule.trace.estimate import EstimatingClock, Rates

ARITHMETIC, MEMORY = Rates(operations=2.0, bytes=1e30), Rates(operations=1e30, bytes=4.0)


def times(profile: Profile) -> dict[str, tuple[float | None, float | None]]:
    return {p.name: (p.ready, p.needed) for p in profile.parameters}


def two() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5, bias=False), nn.Linear(5, 7, bias=False))


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_products_cost_their_multiplications(device: str) -> None:
    """With 2 rows: 2 * 3 * 5 = 30 in the first layer, 2 * 5 * 7 = 70 in the second. Backward makes a gradient of each
    weight and, in the second layer, of its input."""
    profile = trace(two().to(device), (torch.ones(2, 3),), rates=ARITHMETIC)
    assert profile.estimated and profile.device == device and profile.how == "torch.fx"
    assert profile.forward == pytest.approx(100) and profile.backward == pytest.approx(170)
    assert times(profile)["0.weight"] == pytest.approx((170, 0))
    ready, needed = times(profile)["1.weight"]
    assert needed == pytest.approx(30) and ready + 1e-9 >= 70 and ready <= 140 + 1e-9


def test_bytes_where_they_take_longer() -> None:
    """Of 4 bytes each, read and written: input, weight and output of each layer, and of a step three of each weight."""
    profile = trace(two().to("meta"), (torch.ones(2, 3),), rates=MEMORY, loss=lambda output: output.view(-1)[0])
    assert times(profile)["1.weight"][1] == 6 + 15 + 10
    assert profile.forward == (6 + 15 + 10) + (10 + 35 + 14)
    assert profile.step == 3 * (15 + 35)


def test_views_and_unwritten_memory_take_nothing() -> None:
    clock = EstimatingClock(MEMORY)
    x = torch.ones(4, 4)
    with clock.running():
        x.t()[0].view(2, 2)[:1].expand(3, 2)
        torch.empty(100)
        start = clock.mark()
        x.sum()
        torch.ones(1).expand(1000).sum()
    assert (start, clock.mark()) == (0.0, 17 + 1 + 2)


def test_meta_is_estimated_unasked_in_proportion_to_operations() -> None:
    model = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 6400, bias=False), nn.Linear(6400, 64)).to("meta")
    profile = trace(model, (torch.ones(512, 64),))
    assert profile.estimated and profile.device == "meta"
    at = {p.name: p.needed for p in profile.parameters}
    assert at["2.weight"] - at["1.weight"] > 10 * (at["1.weight"] - at["0.weight"])


class Shaped(nn.Module):
    """Which torch.fx can't follow, and torch.export can."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 5, bias=False), nn.Linear(5, 7, bias=False)

    def forward(self, x):
        return self.b(self.a(x)) if x.shape[0] > 1 else self.a(x)


def test_export_gives_the_same_times() -> None:
    profile = trace(Shaped().to("meta"), (torch.ones(2, 3),), rates=ARITHMETIC)
    assert profile.how == "torch.export" and "test_estimate.py:" in profile.why[0]
    assert [(p.needed, p.module) for p in profile.parameters] == [(0, "a"), (pytest.approx(30), "b")]


def test_control_flow_on_values_that_are_not_there() -> None:
    class Deciding(Shaped):
        def forward(self, x):
            return self.a(x) if x.sum() > 0 else self.b(self.a(x))

    with pytest.raises(ModelError) as caught:
        trace(Deciding().to("meta"), (torch.ones(2, 3),))
    assert caught.value.code == "RX0422" and "test_estimate.py:" in caught.value.message


def test_without_a_sample_each_weight_costs_its_elements() -> None:
    profile = trace(two(), None, rates=ARITHMETIC)
    assert (profile.how, profile.estimated) == ("torch.fx", True)
    assert (profile.forward, profile.backward) == (50, 100)
    assert times(profile) == {"0.weight": (100, 0), "1.weight": (70, 15)}
    assert [p.module for p in profile.parameters] == ["0", "1"]
    assert trace(two(), None, rates=MEMORY).step == 3 * 50


def test_without_a_sample_the_model_must_be_plain() -> None:
    with pytest.raises(ModelError) as caught:
        trace(Shaped(), None)
    assert caught.value.code == "RX0421" and "test_estimate.py:" in caught.value.message
    assert caught.value.help == "give a sample"
