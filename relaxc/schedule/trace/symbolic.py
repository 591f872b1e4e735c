"""torch.fx: the forward with stand-ins for its arguments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

from torch import fx, nn

from relaxc.schedule.trace.graph import Traced
from relaxc.schedule.trace.sample import Sample

_WHOLE = (nn.MultiheadAttention,)
"""Modules of torch that read the parameters of modules within them themselves."""


class _Tracer(fx.Tracer):
    """Goes into torch's own modules too, where these hold others with parameters: a whole encoder layer is too much
    for one node."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        holds = any(True for child in m.children() for _ in child.parameters())
        return super().is_leaf_module(m, module_qualified_name) and (not holds or isinstance(m, _WHOLE))


def trace_symbolically(model: nn.Module, sample: Sample) -> Traced:
    """Arguments without a tensor are taken as they are. Raise whatever the model or torch.fx raises."""
    bound = inspect.signature(model.forward).bind(*sample.args, **sample.kwargs)
    return Traced(_graph(model, bound), list(_in_order(bound)))


def trace_without_sample(model: nn.Module) -> fx.GraphModule:
    """Arguments that have a default take it."""
    return _graph(model, inspect.signature(model.forward).bind_partial())


def _graph(model: nn.Module, bound: inspect.BoundArguments) -> fx.GraphModule:
    bound.apply_defaults()
    fixed = {name: value for name, value in bound.arguments.items() if _is_plain(value)}
    return fx.GraphModule(model, _Tracer().trace(model, fixed))


def _in_order(bound: inspect.BoundArguments) -> Iterator[Any]:
    for name, value in bound.arguments.items():
        if bound.signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL:
            yield from value
        else:
            yield value


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)
