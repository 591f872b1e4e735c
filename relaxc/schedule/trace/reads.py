"""When a forward first reads each weight, and how a graph's account of that is held against a recorded one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

import torch
from torch.utils import _pytree as pytree

from relaxc.schedule.trace.names import enclosing


@dataclass(frozen=True, slots=True)
class Read:
    """`at` is seconds after forward begins, `module` who reads, "" for the model itself."""

    at: float
    module: str


@dataclass(frozen=True, slots=True)
class Reads:
    """Of one forward, or the medians of several; `total` is what it took, in seconds. `entered` is when each module
    began, where that is known."""

    total: float
    first: Mapping[str, Read]
    entered: Mapping[str, float] = field(default_factory=dict)

    def completed(self, names: Iterable[str]) -> Reads:
        """With those that take part, though nothing of torch was seen to read them (a script or a kernel of the user's
        own did): read as soon as the innermost module around them began."""
        unseen = {name: self._begun(name) for name in names if name not in self.first}
        return replace(self, first={**self.first, **unseen})

    def _begun(self, name: str) -> Read:
        module = next((m for m in enclosing(name) if m in self.entered), "")
        return Read(self.entered.get(module, 0.0), module)

    def lasting(self, total: float) -> Reads:
        """The same, where the forward takes that long."""
        scale = total / self.total if self.total > 0 else 1.0
        return Reads(total, {name: Read(read.at * scale, read.module) for name, read in self.first.items()})


def medians(runs: Sequence[Reads]) -> Reads:
    names = dict.fromkeys(name for run in runs for name in run.first)
    first = {name: _median([run.first[name] for run in runs if name in run.first]) for name in names}
    return Reads(median(run.total for run in runs), first)


def _median(reads: Sequence[Read]) -> Read:
    return Read(median(read.at for read in reads), reads[0].module)


METADATA = frozenset({"new_empty", "new_zeros", "new_ones", "new_full", "empty_like", "zeros_like", "ones_like"})
"""What takes a tensor for its shape or dtype only."""
VALUES = frozenset({"item", "tolist", "numpy", "__bool__", "__float__", "__int__", "__index__"})
"""What reads a tensor, and gives none."""


def is_read(name: str, result: Any) -> bool:
    """Whether an operation of that name with that result has read the tensors that it was given, or begun to."""
    if name in METADATA:
        return False
    return name in VALUES or any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(result))


def disagreement(recorded: Reads, taking_part: Iterable[str], order: Mapping[str, int]) -> str | None:
    """Why a graph is not that of the recorded forward; `order` numbers each parameter's first reader in it."""
    missing = next((name for name in taking_part if name not in order), None)
    if missing is not None:
        return f"its graph does not read {missing}, and the model does"
    at_once: dict[float, list[str]] = {}
    for name, read in recorded.first.items():
        at_once.setdefault(read.at, []).append(name)
    latest = ""
    for _, names in sorted(at_once.items()):
        early = next((name for name in names if latest and order[name] < order[latest]), None)
        if early is not None:
            return f"its graph reads {early} before {latest}, and the model after it"
        latest = max(names, key=order.__getitem__)
    return None
