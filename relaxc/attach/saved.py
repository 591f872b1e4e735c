"""A saved state, as this worker reads it: its own keys, or those of all old ranks where the number of workers has
changed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from relaxc.errors import ExchangeError
from relaxc.schedule.keepers import Part
from relaxc.wire.parameters import Parameter

MACHINES = "machines"
"""Of a state: the workers of a machine, in each hierarchy."""


class Saved:
    """`workers` are those that saved it; `machines` are the workers of a machine, by hierarchy, now. What is missing or
    of another size raises ExchangeError (RX0606)."""

    def __init__(self, state: Mapping[str, Any], rank: int, workers: int, machines: list[int]) -> None:
        self.workers = int(state["workers"])
        self.state = state
        self._rank, self._now, self._machines = rank, workers, machines

    @property
    def same(self) -> bool:
        return self.workers == self._now

    @property
    def _same_machines(self) -> bool:
        saved = self.state.get(MACHINES)
        return (saved.tolist() if isinstance(saved, torch.Tensor) else []) == self._machines

    def own(self, key: str, elements: int) -> torch.Tensor:
        return self.of(key, self._rank, elements)

    def worker(self, key: str, parameter: Parameter, parts: Sequence[Part] | None) -> torch.Tensor:
        """A worker's losses: of another number of workers, such that their mean stays. `parts` are those that it keeps
        where others keep others."""
        if self.same and (parts is None or self._same_machines):
            return self.own(key, parameter.elements)
        if parts is not None:
            return self._dealt(key, parameter, parts)
        total = sum(
            (self.of(key, old, parameter.elements) for old in range(self._rank, self.workers, self._now)),
            torch.zeros(parameter.elements, dtype=_real(parameter)),
        )
        return total * (self._now / self.workers)

    def _dealt(self, key: str, parameter: Parameter, parts: Iterable[Part]) -> torch.Tensor:
        """What all had, dealt to who keeps it now."""
        made = torch.zeros(parameter.elements, dtype=_real(parameter))
        total = sum((self.of(key, old, parameter.elements) for old in range(self.workers)), torch.zeros_like(made))
        for part in parts:
            here = slice(part.first, part.end)
            made[here] = total[here] * (self._now / self.workers / part.keepers)
        return made

    def owner(
        self, key: str, parameter: Parameter, wanted: tuple[int, int], shares: Iterable[tuple[int, int]]
    ) -> torch.Tensor:
        """The owners' losses, dealt anew. `shares` are what each old rank owned."""
        if self.same:
            return self.own(key, wanted[1] - wanted[0])
        whole = torch.zeros(parameter.elements, dtype=_real(parameter))
        for rank, (start, end) in enumerate(shares):
            if end > start:
                whole[start:end] = self.of(key, rank, end - start)
        return whole[wanted[0] : wanted[1]]

    def mean(self, key: str, elements: int, replicated: bool) -> torch.Tensor:
        """What a worker has of its own; of another number of workers their mean, or anyone's if it is `replicated`."""
        if self.same:
            return self.own(key, elements)
        if replicated:
            return self.any(key, elements)
        found = [self.of(key, old, elements) for old in range(self.workers)]
        if all(torch.equal(found[0], other) for other in found):
            return found[0]
        return (sum(f.double() for f in found) / self.workers).to(found[0].dtype)  # type: ignore[union-attr]

    def of(self, key: str, rank: int, elements: int) -> torch.Tensor:
        tensor = self.state.get(f"{key}/rank{rank}")
        if tensor is None:
            raise ExchangeError(
                "RX0606",
                f"the state has no {key}/rank{rank}: it was saved by {self.workers} workers with another rank's keys",
                f"pass the union of the state_dicts of all {self.workers} workers",
            )  # fmt: skip
        return _sized(key, tensor, elements)

    def number(self, key: str) -> float:
        if key not in self.state:
            raise ExchangeError("RX0606", f"the state has no {key}", "pass what relaxed.state_dict() returned")
        return float(self.state[key])

    def any(self, key: str, elements: int) -> torch.Tensor:
        """A value that all workers share: this rank's copy, or any."""
        return _sized(key, self.state[f"{key}/rank{self.some_rank(key)}"], elements)

    def some_rank(self, key: str) -> int:
        """This rank, or the first that has `key`."""
        ranks = [self._rank, *range(self.workers)] if self.same else [*range(self.workers)]
        found: int | None = next((r for r in ranks if f"{key}/rank{r}" in self.state), None)
        if found is None:
            raise ExchangeError("RX0606", f"the state has no {key}", "pass what relaxed.state_dict() returned")
        return found


def _real(parameter: Parameter) -> torch.dtype:
    return torch.float64 if parameter.dtype == "f64" else torch.float32


def _sized(key: str, tensor: torch.Tensor, elements: int) -> torch.Tensor:
    if tensor.numel() != elements:
        raise ExchangeError(
            "RX0606", f"{key} has {tensor.numel()} elements in the state and {elements} here",
            "load a state of the same model",
        )  # fmt: skip
    return torch.as_tensor(tensor).cpu()  # a state that is loaded may come from any device


def another_plan(what: str) -> ExchangeError:
    return ExchangeError("RX0606", f"the state is another plan's: it has {what}", "load it with the plan that saved it")
