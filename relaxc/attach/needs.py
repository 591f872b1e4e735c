"""Weights that are waited for where a forward first reads them, as the trace that the plan is fitted to has seen it.

That is believed once a forward has called all modules that read weights, in eager mode: a compiled model calls no hooks
of its parts. A weight that is read elsewhere before it is complete, and has a gradient, is refused at backward.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import nn

from relaxc.attach.clock import Clock
from relaxc.errors import ExchangeError
from relaxc.manifest import Manifest
from relaxc.schedule.needs import lands_by_parts, readers


class Needs:
    """`modules` are those that read weights, with the numbers of the buckets that are to be complete there."""

    def __init__(self, clocks: Sequence[Clock], modules: Mapping[nn.Module, Sequence[int]]) -> None:
        self._clocks, self.modules = tuple(clocks), modules
        self._called: set[nn.Module] = set()
        self._believed = False
        self.inside = False
        """Whether a forward of the whole model runs, bucket by bucket."""

    def enter(self) -> bool:
        """A forward of the whole model begins that a backward will follow. Whether it goes bucket by bucket."""
        self._called = set()
        self.inside = self._believed
        for clock in self._clocks if self.inside else ():
            clock.open_tail()
        return self.inside

    def leave(self) -> None:
        """It has ended, be it by an exception."""
        self.inside = False
        self._believed = len(self._called) == len(self.modules)
        self._called = set()

    def read(self, module: nn.Module) -> None:
        self._called.add(module)
        for clock in self._clocks:
            if clock.tail is not None:
                for number in self.modules[module]:
                    clock.tail.land(number)


def needs_of(manifest: Manifest, model: nn.Module, clocks: Sequence[Clock]) -> Needs | None:
    """None where weights are waited for as a whole."""
    cohorts = [cohort for clock in clocks for cohort in clock.cohorts]
    if not all(lands_by_parts(cohort.program) for cohort in cohorts):
        return None
    read_by = readers(manifest)
    found: dict[nn.Module, list[int]] = {}
    for site in (site for cohort in cohorts for site in cohort.sites):
        for name in {read_by.get(p.name, "") for p in site.members}:
            module = _module(model, name)
            if module is None:
                return None
            found.setdefault(module, []).append(site.number)
    return Needs(clocks, found) if found else None


def _module(model: nn.Module, name: str) -> nn.Module | None:
    """A part of the model."""
    try:
        return model.get_submodule(name) if name else None
    except AttributeError:
        return None


def refuse_unread(clock: Clock, fired: Sequence[bool]) -> None:
    """Raise ExchangeError (RX0616) for a weight with a gradient that was read before it was complete."""
    left = clock.tail.left.values() if clock.tail is not None else ()
    early = next((p.name for _, site in left for p in site.members if fired[p.number]), None)
    if early is not None:
        raise ExchangeError(
            "RX0616", f"weights of {early} were read before they were complete, elsewhere in the model than in the "
            "iteration that the plan was fitted to",
            "call relaxed.complete() before such a forward, or compile without a sample",
        )  # fmt: skip
