"""What backward starts from: the output's own loss, or the means of what needs a gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch

from relaxc.errors import ModelError
from relaxc.schedule.trace import trace
from relaxc.schedule.trace.loss import loss_of

A, B = torch.tensor([1.0, 3.0], requires_grad=True), torch.tensor([[8.0]], dtype=torch.float64, requires_grad=True)


@dataclass
class Output:
    first: torch.Tensor
    rest: tuple[object, ...]
    loss: torch.Tensor | None = None


class Pair(NamedTuple):
    x: object
    y: object


@pytest.mark.parametrize(
    ("output", "value"),
    [
        (A, 2), ((A, B), 10), ([A, None, "text", 3], 2), ({"a": {"b": A}, "c": torch.ones(2)}, 2), (Pair(A, (B,)), 10),
        (Output(A, (B, torch.arange(3))), 10), (Output(A, (), loss=B.sum()), 8), ({"loss": B.mean(), "logits": A}, 8),
        (Output(A, (), loss=torch.tensor(5.0)), 2),
    ],
)  # fmt: skip
def test_outputs(output: object, value: float) -> None:
    made = loss_of(output)
    assert made.shape == () and made.requires_grad and made.item() == value


@pytest.mark.parametrize("output", [None, torch.ones(2), (3, "text"), Output, {}])
def test_nothing_needs_a_gradient(output: object) -> None:
    with pytest.raises(ModelError) as caught:
        loss_of(output)
    assert caught.value.code == "RX0424"


def test_a_loss_of_the_users() -> None:
    model = torch.nn.Linear(2, 2)
    given = []
    trace(model, (torch.ones(1, 2),), loss=lambda output: given.append(output.shape) or output.pow(2).sum(), runs=1)
    assert set(given) == {(1, 2)}
