"""An estimate for a model without a sample: in the order in which torch.fx sees weights read, each costs what its own
elements do."""

from __future__ import annotations

from torch import nn

from relaxc.errors import ModelError
from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.trace.dtypes import name_of
from relaxc.schedule.trace.estimate import Rates
from relaxc.schedule.trace.graph import called, operands, reader
from relaxc.schedule.trace.names import Live, names_by_id
from relaxc.schedule.trace.reads import METADATA
from relaxc.schedule.trace.state import same_attributes
from relaxc.schedule.trace.symbolic import trace_without_sample
from relaxc.users_code import described

_PROPERTIES = METADATA | {"getattr", "size", "dim", "numel"}


def by_weights(model: nn.Module, live: Live, rates: Rates) -> Profile:
    """As if one row went through: two operations an element and its bytes, twice that in backward, and in a step three
    times its bytes. Raise ModelError (RX0421) where torch.fx can't follow the model."""
    readers = _readers(model, live)
    needed, forward = {}, 0.0
    for name in readers:
        needed[name] = forward
        forward += _cost(live[name], rates)
    ready = {name: 2 * (forward - at) for name, at in needed.items()}
    parameters = tuple(
        ParameterTimes(
            name, tuple(tensor.shape), name_of(tensor.dtype), ready.get(name), needed.get(name), readers.get(name, "")
        )
        for name, tensor in live.items()
    )
    step = sum(3 * live[name].numel() * live[name].element_size() / rates.bytes for name in readers)
    return Profile(forward, 2 * forward, step, parameters, "torch.fx", estimated=True, device="meta")


def _cost(tensor: nn.Parameter, rates: Rates) -> float:
    return max(2 * tensor.numel() / rates.operations, tensor.numel() * tensor.element_size() / rates.bytes)


def _readers(model: nn.Module, live: Live) -> dict[str, str]:
    """The module that first reads each weight, in that order."""
    try:
        with same_attributes(model):
            graph = trace_without_sample(model)
    except (Exception, SystemExit) as error:
        raise ModelError(
            "RX0421", f"there is no sample, and torch.fx can't follow the model: {described(error)}", "give a sample"
        ) from error
    given = operands(graph, names_by_id(live))
    readers: dict[str, str] = {}
    for node in graph.graph.nodes:
        for name in given.get(node, ()) if called(node) not in _PROPERTIES else ():
            readers.setdefault(name, reader(node))
    return readers
