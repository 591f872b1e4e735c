"""What programs must remember: states, kept values, slots, residuals, and the numbers of their control.

Keys: `state/NAME/PARAMETER/rankR`, `kept/N.COPY/...`, `slot/N.COPY/...`, `codec/N.NAME/...` (a state of exchange N's
codec), `loss/N/...` (a worker's own of exchange N), `owned/N/...` (an owner's), `factor/N/...` (the Q of one of low
rank), `relay/N.PEER/...` (what a neighbour sent last time), `control/PARAMETER/KEY/rankR` (numbers of the cohort that
begins with that parameter).

What had begun of the next iteration is no part of it: it begins again. Another number of workers: what is replicated is
anyone's, what is local is averaged, residuals are as those of gradients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from relaxc.attach.buffers import Flat
from relaxc.attach.calls import Site
from relaxc.attach.clock import Clock, Reached
from relaxc.attach.cohort import Cohort
from relaxc.attach.cohort_state import flat, moment, restore
from relaxc.attach.programs import Programs
from relaxc.attach.relays import RELAY, HeldEntry, held_entries, key_of, relays_of
from relaxc.attach.saved import Saved, another_plan
from relaxc.errors import ExchangeError
from relaxc.manifest import Manifest
from relaxc.schedule.keepers import kept_parts
from relaxc.schedule.schedule import residual_of
from relaxc.wire.parameters import Parameter

CONTROL = "control"
OF_PROGRAMS = frozenset({"state", "kept", "slot", "codec", "factor", "loss", "owned", RELAY, CONTROL})


@dataclass(frozen=True)
class _Entry:
    """A flat tensor's part for one parameter. `transfer` for a residual, whose `owner` tells whose it is."""

    key: str
    site: Site
    parameter: Parameter
    flat: Flat
    transfer: int = -1
    owner: bool = False

    @property
    def view(self) -> torch.Tensor:
        return self.flat.view(self.parameter.number)


@dataclass(frozen=True)
class Read:
    """A state that fits, not yet taken over."""

    tensors: list[tuple[torch.Tensor, torch.Tensor]]
    numbers: list[tuple[Cohort, dict[str, float]]]


class ProgramState:
    def __init__(self, manifest: Manifest, programs: Programs, rank: int, workers: int) -> None:
        self._manifest, self._programs, self._rank, self._workers = manifest, programs, rank, workers

    def state(self) -> dict[str, Any]:
        self._programs.complete()
        self._programs.come_to_rest()
        self._programs.drain()
        made = self.now()
        self._programs.launch_again()
        return made

    def now(self) -> dict[str, Any]:
        """Weights are complete and nothing that is waited for is under way."""
        made: dict[str, Any] = {}
        for clock in self._programs.clocks:
            for cohort, numbers in zip(clock.cohorts, _numbers(clock), strict=True):
                made |= {f"{_control(cohort)}{key}/rank{self._rank}": value for key, value in numbers.items()}
        made |= {f"{held.key}/rank{self._rank}": held.value() for held in self._held()}
        made |= {f"{e.key}/rank{self._rank}": e.view.clone() for e in self._entries() if e.view.numel()}
        return made

    def read(self, saved: Saved) -> Read:
        """Raise ExchangeError (RX0606) where the state does not fit."""
        entries = list(self._entries())
        self._refuse_strangers(saved, {e.key for e in entries} | set(self._relayed(saved.workers)))
        tensors = [(e.view, self._value(saved, e)) for e in entries if e.view.numel()]
        for held in self._held():
            tensors += held.split(_held_value(saved, held))
        return Read(tensors, [(cohort, _saved_numbers(saved, cohort)) for cohort in self._programs.cohorts])

    def load(self, read: Read) -> None:
        asynchrony = self._programs.asynchrony
        if asynchrony is not None:
            asynchrony.come_to_rest(forgets=True)
            asynchrony.forget()
        self.take(read)
        if asynchrony is not None:
            asynchrony.go_on()

    def take(self, read: Read) -> None:
        """While nothing is under way."""
        self._programs.traffic.forget()
        for clock in self._programs.clocks:
            clock.rewind()
        for tensor, value in read.tensors:
            tensor.copy_(value)
        for cohort, numbers in read.numbers:
            restore(cohort, numbers)
            for block, lane in cohort.lanes.items():
                lane.launches = cohort.control.counts.runs.get(block, 0)

    def _entries(self) -> Iterator[_Entry]:
        for cohort in self._programs.cohorts:
            for site in cohort.sites:
                for parameter in site.members:
                    yield from _entries(site, parameter)

    def _held(self) -> Iterator[HeldEntry]:
        for cohort in self._programs.cohorts:
            yield from held_entries(cohort, self._programs.traffic)

    def _relayed(self, workers: int) -> Iterator[str]:
        """The keys that any of `workers` has of its neighbours."""
        for site in (site for cohort in self._programs.cohorts for site in cohort.sites):
            for number in relays_of(site):
                yield from (key_of(number, peer, p.name) for peer in range(workers) for p in site.members)

    def _value(self, saved: Saved, entry: _Entry) -> torch.Tensor:
        parameter = entry.parameter
        if entry.transfer < 0:
            body = self._manifest.bodies[entry.site.bucket.body]
            return saved.mean(entry.key, entry.view.numel(), body.agreement == "replicated")
        exchange = entry.site.program.transfers[entry.transfer].exchange
        if not entry.owner:
            return saved.worker(entry.key, parameter, kept_parts(exchange, parameter, self._workers, self._rank))
        here = residual_of(exchange, parameter, self._workers, self._rank).owner
        shares = [residual_of(exchange, parameter, saved.workers, rank).owner for rank in range(saved.workers)]
        return saved.owner(entry.key, parameter, here, shares)

    def _refuse_strangers(self, saved: Saved, known: set[str]) -> None:
        controls = tuple(_control(cohort) for cohort in self._programs.cohorts)
        for key in saved.state:
            kind, base = key.partition("/")[0], key.rpartition("/")[0]
            if kind in OF_PROGRAMS and base not in known and not key.startswith(controls):
                raise another_plan(f"{key}, for which this plan has no place")


def _held_value(saved: Saved, held: HeldEntry) -> torch.Tensor:
    """Among another number of workers, relays begin anew: all of what is under way, values and counts alike."""
    if saved.same:
        return saved.own(held.key, held.elements)
    return torch.zeros(held.elements, dtype=held.parts[0].dtype)


def _entries(site: Site, parameter: Parameter) -> Iterator[_Entry]:
    name = parameter.name
    for key, laid in site.memory.named():
        yield _Entry(f"{key}/{name}", site, parameter, laid)
    for number, residual in enumerate(site.memory.residuals):
        yield _Entry(f"loss/{number}/{name}", site, parameter, residual.worker, number)
        yield _Entry(f"owned/{number}/{name}", site, parameter, residual.owner, number, owner=True)


def _control(cohort: Cohort) -> str:
    first = min((p for site in cohort.sites for p in site.members), key=lambda p: p.number)
    return f"{CONTROL}/{first.name}/"


def _numbers(clock: Clock) -> list[dict[str, float]]:
    """The cohorts' numbers as the iteration found them. A launch that waits for its partners is launched again."""
    found = _found(clock)
    for cohort, numbers in zip(clock.cohorts, found, strict=True):
        for block, lane in cohort.lanes.items():
            numbers[f"runs/{block}"] = float(lane.flight.number if lane.flight is not None else lane.launches)
    return found


def _found(clock: Clock) -> list[dict[str, float]]:
    if clock.reached is Reached.NOTHING:
        return [flat(moment(cohort)) for cohort in clock.cohorts]
    if clock.reached is not Reached.BEGIN and clock.does("backward"):
        raise ExchangeError(
            "RX0615", "the program is in the middle of an iteration, between backward() and optimizer.step()",
            "call state_dict() after optimizer.step()",
        )  # fmt: skip
    return [flat(saved) for saved in clock.saved]


def _saved_numbers(saved: Saved, cohort: Cohort) -> dict[str, float]:
    start = _control(cohort)
    rank = saved.some_rank(f"{start}t")
    end = f"/rank{rank}"
    found = {
        key.removeprefix(start).removesuffix(end): float(value)
        for key, value in saved.state.items()
        if key.startswith(start) and key.endswith(end)
    }
    missing = [name for name in cohort.numbers if f"number/{name}" not in found]
    if missing:
        raise another_plan(f"no number {missing[0]}")
    return found
