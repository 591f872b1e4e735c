"""Training whose gradients are given: the same to the bit on any device, so that what differs is relaxc's doing."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import relaxc

SPECS = {
    "bytegrad": "relax gradients { compress = 8bit }",
    "choco": "relax with choco { compress = topk(10%), gamma = 0.3 }",
    "one_bit_adam": "relax with one_bit_adam { warmup = 2 }",
    "topk": "relax gradients { compress = topk(5%) }",
    "ring, stochastic, late": "relax gradients { compress = minmax(4, block = 96, rounding = stochastic), "
    "feedback = worker, route = ring, delay = 1 }",
    "dct": "relax gradients { compress = dct(8, 5) }",
    "modulo": "relax weights { compress = modulo(8bit) }",
    "asynchronous": "algorithm a { step  let q = encode(weight, 8bit)  let own = decode(q)  let heard = mix(q, ring)\n"
    "  after async(max = 1) { weight += (heard - own) / 2 } }\nrelax with a",
    "dense": "relax gradients",
    "lent": "relax weights",
}
LOW_RANK = "relax gradients { compress = lowrank(2) }"
"""Made of products and a decomposition that torch does, in no order of its own."""
SHAPES = {"a": (33, 37), "b": (1,), "c": (513,), "d": (40, 33), "e": ()}
ITERATIONS = 4


def model_of(shapes: dict[str, tuple[int, ...]]) -> nn.ParameterDict:
    torch.manual_seed(7)
    return nn.ParameterDict({name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()})


def plan_of(spec: str, shapes: dict[str, tuple[int, ...]], target: str = "cpu") -> Any:
    return relaxc.compile(spec, model=model_of(shapes), target=target)


def gradient(rank: int, iteration: int, like: torch.Tensor, number: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(10_000 * rank + 100 * iteration + number)
    return torch.randn(like.shape, generator=draw).to(like.device)


def backward(model: nn.ParameterDict, rank: int, iteration: int) -> None:
    """d/dp of sum(p * g) is g, on any device."""
    given = [gradient(rank, iteration, p, n) for n, p in enumerate(model.values())]
    torch.stack([(p * g).sum() for p, g in zip(model.values(), given, strict=True)]).sum().backward()


def train(
    rank: int, workers: int, spec: str, device: str, shapes: dict[str, tuple[int, ...]], target: str = "cpu"
) -> list[bytes]:
    """The bytes of weights after each iteration, then those of the plan's state. The rate is a power of two, so that a
    step is rounded once on any device."""
    model = model_of(shapes).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0**-6)
    relaxed = plan_of(spec, shapes, target).attach(model, optimizer, timeout=120)
    found = []
    for iteration in range(ITERATIONS):
        optimizer.zero_grad()
        backward(model, rank, iteration)
        optimizer.step()
        relaxed.complete()
        found.append(b"".join(p.detach().cpu().numpy().tobytes() for p in model.values()))
    state = relaxed.state_dict()
    found.append(b"".join(v.cpu().numpy().tobytes() for _, v in sorted(state.items()) if isinstance(v, torch.Tensor)))
    relaxed.detach()
    return found
