"""The model as it was before, whatever was run on it meanwhile."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

_REGISTRIES = ("_parameters", "_buffers", "_modules")


@contextmanager
def untouched(model: nn.Module) -> Iterator[None]:
    """Within, `.grad` is None to begin with. Afterwards parameters, buffers, gradients, modes, random numbers and the
    modules' attributes are what they were; what an attribute holds (a list, say) is not looked into."""
    put_back = [*_attributes(model), *_tensors(model), *_gradients(model), *_random()]
    device = next((t.device for t in model.parameters() if t.is_cuda), None)
    with torch.random.fork_rng(devices=[] if device is None else [device]), torch.enable_grad():
        try:
            yield
        finally:
            for restore in put_back:
                restore()


@contextmanager
def same_attributes(model: nn.Module) -> Iterator[None]:
    """Afterwards the modules' attributes are what they were: no stand-in of a tracer stays in one."""
    put_back = list(_attributes(model))
    try:
        yield
    finally:
        for restore in put_back:
            restore()


def _attributes(model: nn.Module) -> Iterator[Callable[[], None]]:
    for module in model.modules():
        if isinstance(module, torch.jit.ScriptModule):
            continue  # its attributes live elsewhere
        registries = {name: dict(module.__dict__[name]) for name in _REGISTRIES}
        yield _restorer(module.__dict__, dict(module.__dict__), registries)


def _restorer(now: dict[str, Any], attributes: dict[str, Any], registries: dict[str, Any]) -> Callable[[], None]:
    def restore() -> None:
        now.clear()
        now.update(attributes)
        for name, entries in registries.items():
            now[name].clear()
            now[name].update(entries)

    return restore


def _tensors(model: nn.Module) -> Iterator[Callable[[], None]]:
    for tensor in (*model.parameters(), *model.buffers()):
        before = tensor.detach().clone()

        def restore(tensor: torch.Tensor = tensor, before: torch.Tensor = before) -> None:
            if not tensor.is_meta and not torch.equal(tensor, before):
                with torch.no_grad():
                    tensor.copy_(before)

        yield restore


def _gradients(model: nn.Module) -> Iterator[Callable[[], None]]:
    for parameter in model.parameters():
        before, parameter.grad = parameter.grad, None

        def restore(parameter: nn.Parameter = parameter, before: torch.Tensor | None = before) -> None:
            parameter.grad = before

        yield restore


def _random() -> Iterator[Callable[[], None]]:
    """Of generators that fork_rng does not know."""
    state = random.getstate()
    yield lambda: random.setstate(state)
    if (numpy := sys.modules.get("numpy")) is not None:
        drawn = numpy.random.get_state()
        yield lambda: numpy.random.set_state(drawn)
