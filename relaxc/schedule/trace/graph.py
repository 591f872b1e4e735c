"""A traced graph, run node by node against the clock."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import fx

from relaxc.schedule.trace.clock import Clock
from relaxc.schedule.trace.names import Live, module_name, names_by_id
from relaxc.schedule.trace.reads import Read, Reads, is_read


@dataclass(frozen=True)
class Traced:
    """`inputs` are what its placeholders take, in order."""

    module: fx.GraphModule
    inputs: Sequence[Any]


class TimedGraph:
    """Runs a traced forward, and knows the medians of its nodes' times."""

    def __init__(self, traced: Traced, live: Live, clock: Clock) -> None:
        self._traced, self._clock = traced, clock
        self._operands = operands(traced.module, names_by_id(live))
        self._nodes = list(traced.module.graph.nodes)
        self._runs: list[list[float]] = []
        self.order: dict[str, int] = {}
        """The number of each parameter's first reader, known after the first run."""

    def run(self) -> None:
        """Raise whatever the model raises."""
        timed = _Timed(self._traced.module, self._clock)
        with self._clock.running():
            timed.run(*self._traced.inputs, enable_io_processing=False)
        self._runs.append([self._clock.between(start, end) for start, end in timed.marks])
        for number, (node, reads) in enumerate(zip(self._nodes, timed.reads, strict=True)):
            for name in self._operands.get(node, ()) if reads else ():
                self.order.setdefault(name, number)

    def reads(self) -> Reads:
        times = [median(run) for run in zip(*self._runs, strict=True)]
        begins = [0.0]
        for seconds in times:
            begins.append(begins[-1] + seconds)
        first = {name: Read(begins[number], reader(self._nodes[number])) for name, number in self.order.items()}
        return Reads(begins[-1], first)


class _Timed(fx.Interpreter):
    """Of each node when it ran, and whether it read what it was given."""

    def __init__(self, module: fx.GraphModule, clock: Clock) -> None:
        super().__init__(module)
        self.extra_traceback = False
        self._clock = clock
        self.marks: list[tuple[Any, Any]] = []
        self.reads: list[bool] = []

    def run_node(self, n: fx.Node) -> Any:
        start = self._clock.mark()
        result = super().run_node(n)
        self.marks.append((start, self._clock.mark()))
        passive = n.op in ("placeholder", "get_attr", "output")
        self.reads.append(not passive and is_read(called(n), result))
        return result


def called(node: fx.Node) -> str:
    """The name of the operation: `new_zeros` of aten.new_zeros.default too."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return name.split(".")[0]


def operands(module: fx.GraphModule, names: Mapping[int, str]) -> dict[fx.Node, list[str]]:
    """The parameters that each node is given, or has."""
    given: dict[fx.Node, list[str]] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr":
            tensor = _attribute(module, str(node.target))
            for user in node.users if id(tensor) in names else ():
                given.setdefault(user, []).append(names[id(tensor)])
        elif node.op == "call_module":
            inner = module.get_submodule(str(node.target))
            given.setdefault(node, []).extend(names[id(p)] for p in inner.parameters() if id(p) in names)
    return given


def _attribute(module: torch.nn.Module, target: str) -> Any:
    value: Any = module
    for part in target.split("."):
        value = getattr(value, part)
    return value


def reader(node: fx.Node) -> str:
    """The innermost module whose forward the node stands in."""
    return next(_stack(node), "")


def _stack(node: fx.Node) -> Iterator[str]:
    if node.op == "call_module":
        yield module_name(str(node.target))
    for name, *_ in reversed(list(node.meta.get("nn_module_stack", {}).values())):
        yield module_name(re.sub(r"@\d+", "", name))
