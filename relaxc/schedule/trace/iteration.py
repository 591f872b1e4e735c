"""One iteration as it runs, without an exchange: forward, loss, backward, and when each gradient was there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from relaxc.schedule.trace.clock import Clock
from relaxc.schedule.trace.names import Live
from relaxc.schedule.trace.sample import Sample


@dataclass(frozen=True, slots=True)
class Iteration:
    """In seconds. `model` is the model's part of `forward`, which has the loss too; `ready` is each gradient after
    backward began; `late`: all gradients come out of one compiled function."""

    model: float
    forward: float
    backward: float
    step: float
    ready: Mapping[str, float]
    late: bool


def iterate(
    model: nn.Module, sample: Sample, loss: Callable[[Any], torch.Tensor], live: Live, clock: Clock
) -> Iteration:
    """Raise whatever the model or the loss raises. Leaves gradients in `.grad`."""
    for parameter in live.values():
        parameter.grad = None
    ready: dict[str, Any] = {}
    with clock.running(), _hooked(live, clock, ready):
        marks = [clock.mark()]
        output = model(*sample.args, **sample.kwargs)
        marks.append(clock.mark())
        total = loss(output)
        late = comes_at_once(total, live)
        marks.append(clock.mark())
        total.backward()  # type: ignore[no-untyped-call]
        marks.append(clock.mark())
        _plain_step(live)
        marks.append(clock.mark())
    began, forward, lost, back, stepped = marks
    return Iteration(
        model=clock.between(began, forward), forward=clock.between(began, lost), backward=clock.between(lost, back),
        step=clock.between(back, stepped), ready={name: clock.between(lost, at) for name, at in ready.items()},
        late=late,
    )  # fmt: skip


@contextmanager
def _hooked(live: Live, clock: Clock, ready: dict[str, Any]) -> Iterator[None]:
    """A reentrant checkpoint may add to a gradient several times: the last one counts."""

    def stamp(name: str) -> Callable[[torch.Tensor], None]:
        return lambda _: ready.__setitem__(name, clock.mark())

    handles = [_on_gradient(tensor, stamp(name)) for name, tensor in live.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _on_gradient(tensor: nn.Parameter, hook: Callable[[torch.Tensor], None]) -> Any:
    return tensor.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


@torch.no_grad()
def _plain_step(live: Live) -> None:
    """What plain SGD does, to nobody's weights: an optimiser's step takes this long at least."""
    spare: dict[tuple[torch.device, torch.dtype], torch.Tensor] = {}
    for tensor in sorted(live.values(), key=lambda t: -t.numel()):
        if tensor.grad is None or tensor.grad.layout != torch.strided:
            continue
        kind = tensor.device, tensor.dtype
        if kind not in spare:
            spare[kind] = torch.empty(tensor.numel(), device=tensor.device, dtype=tensor.dtype)
        torch.add(tensor, tensor.grad, alpha=-1e-3, out=spare[kind][: tensor.numel()].view(tensor.shape))


def comes_at_once(loss: torch.Tensor, live: Live) -> bool:
    """Whether one compiled function makes the gradients of all parameters that the loss depends on."""
    wanted = {id(tensor) for tensor in live.values()}
    feeders: set[torch.autograd.graph.Node] = set()
    waiting = [] if loss.grad_fn is None else [loss.grad_fn]
    known = {None, *waiting}
    while waiting:
        node = waiting.pop()
        for following, _ in node.next_functions:
            if id(getattr(following, "variable", None)) in wanted:
                feeders.add(node)
            elif following is not None and following not in known:
                known.add(following)
                waiting.append(following)
    return len(feeders) == 1 and "CompiledFunction" in next(iter(feeders)).name()
