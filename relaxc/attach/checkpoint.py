"""What a plan must remember: residuals, results that have not landed, the iteration.

Keys are flat: `residual/NAME/rankR` (a worker's own losses), `owner/NAME/rankR` (the owner's, for the elements that it
owns), `late/B/NAME/rankR` (the result of B iterations before the newest, in its own loss scale `late/B/scale`, and
`late/B/landed/rankR`, which parameters had a gradient), numbers `workers`, `iterations`, `scale`. Tensors are flat
copies in memory order; residuals are without the loss scale.

Another number of workers: the mean of the workers' residuals is kept, since that is what they would still have added to
the mean; old worker r's goes to new worker r modulo their number. The owners' are one vector, dealt anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from relaxc.attach.engine import Running
from relaxc.errors import ExchangeError
from relaxc.manifest import BodyPlan, Manifest
from relaxc.schedule.schedule import Schedule, residual_of
from relaxc.wire.parameters import Parameter

State = dict[str, Any]
FEEDBACKS = {"residual": ("worker", "both"), "owner": ("both",)}
"""By kind of key, the feedbacks that keep it."""


class Checkpoint:
    """Reads and writes the state of one worker."""

    def __init__(
        self, manifest: Manifest, schedule: Schedule, parameters: tuple[Parameter, ...], running: Running
    ) -> None:
        self._manifest, self._schedule, self._parameters, self._running = manifest, schedule, parameters, running

    def state(self) -> State:
        engine, rank = self._running.engine, self._schedule.rank
        engine.drain()
        pending = engine.pending()
        state: State = {
            "format": 1, "workers": self._schedule.workers, "iterations": engine.iterations, "scale": engine.scale,
            "late": len(pending),
        }  # fmt: skip
        for parameter, kept in zip(self._parameters, self._running.residuals, strict=True):
            if kept.worker is not None:
                state[f"residual/{parameter.name}/rank{rank}"] = kept.worker / engine.scale
            if kept.owner is not None:
                state[f"owner/{parameter.name}/rank{rank}"] = kept.owner / engine.scale
        for back, (_number, scale, census, flat) in enumerate(reversed(pending)):
            state[f"late/{back}/landed/rank{rank}"] = census
            state[f"late/{back}/scale"] = scale
            for parameter in self._late():
                state[f"late/{back}/{parameter.name}/rank{rank}"] = self._slice(parameter, flat).clone()
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        """Raise ExchangeError (RX0606) where `state` is not of this plan and model, before anything is changed."""
        numbers = [state.get(key) for key in ("workers", "iterations", "late")]
        if state.get("format") != 1 or not all(isinstance(n, int) for n in numbers) or state["workers"] < 1:
            raise ExchangeError("RX0606", "this is not the state of a plan", "pass what relaxed.state_dict() returned")
        self._refuse_strangers(state)
        reader = _Reader(state, self._schedule)
        new = [self._read_residuals(reader, p) for p in self._parameters]
        rows = self._read_late(reader, int(state["late"]), int(state["iterations"]))
        engine = self._running.engine
        engine.drain()
        for kept, (worker, owner) in zip(self._running.residuals, new, strict=True):
            for tensor, value in ((kept.worker, worker), (kept.owner, owner)):
                if tensor is not None and value is not None:
                    tensor.copy_(value * engine.scale)
        engine.resume(int(state["iterations"]), rows)

    def _read_residuals(self, reader: _Reader, parameter: Parameter) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        body = self._manifest.bodies[self._schedule.bodies[parameter.number]]
        here = residual_of(body, parameter, self._schedule.workers, self._schedule.rank)
        worker = reader.worker(parameter) if here.worker else None
        shares = [residual_of(body, parameter, reader.workers, rank).owner for rank in range(reader.workers)]
        owner = reader.owner(parameter, here.owner, shares) if here.owner[1] > here.owner[0] else None
        return worker, owner

    def _late(self) -> list[Parameter]:
        return [p for p in self._parameters if self._manifest.bodies[self._schedule.bodies[p.number]].delay > 0]

    def _slice(self, parameter: Parameter, flat: list[torch.Tensor | None]) -> torch.Tensor:
        buffer = flat[self._running.bucket_of[parameter.number]]
        assert buffer is not None
        offset = self._running.offsets[parameter.number]
        return buffer[offset : offset + parameter.elements]

    def _refuse_strangers(self, state: Mapping[str, Any]) -> None:
        """What this plan has no place for would be lost in silence."""
        bodies = [self._manifest.bodies[b] for b in self._schedule.bodies]
        longest = max((body.delay for body in bodies), default=0)
        if state["late"] != min(longest, state["iterations"]):
            raise _another_plan(f"{state['late']} late results where this plan delays by {longest}")
        kept = {p.name: _feedback(body) for p, body in zip(self._parameters, bodies, strict=True)}
        for key in state:
            kind, _, rest = key.partition("/")
            name = rest.rpartition("/")[0]
            if kind in FEEDBACKS and kept.get(name, "none") not in FEEDBACKS[kind]:
                raise _another_plan(f"{key}, for which this plan has no place")

    def _read_late(self, reader: _Reader, count: int, iterations: int) -> list[Any]:
        rows = []
        for back in reversed(range(count)):
            flat = [torch.zeros_like(b[0]) if len(b) > 1 else None for b in self._running.flat]
            for parameter in self._late():
                self._slice(parameter, flat).copy_(reader.any(f"late/{back}/{parameter.name}", parameter.elements))
            census = reader.any(f"late/{back}/landed", len(self._parameters))
            rows.append((iterations - 1 - back, reader.number(f"late/{back}/scale"), census, flat))
        return rows


def _feedback(body: BodyPlan) -> str:
    return "none" if body.exchange.codec is None else body.exchange.feedback


class _Reader:
    """Looks keys up under this rank, or merges those of all old ranks where the number of workers has changed."""

    def __init__(self, state: Mapping[str, Any], schedule: Schedule) -> None:
        self.workers = int(state["workers"])
        self._state, self._schedule = state, schedule

    def worker(self, parameter: Parameter) -> torch.Tensor:
        key = f"residual/{parameter.name}"
        here, now = self._schedule.rank, self._schedule.workers
        if self.workers == now:
            return self.of(key, here, parameter.elements)
        total = sum(
            (self.of(key, old, parameter.elements) for old in range(here, self.workers, now)),
            torch.zeros(parameter.elements),
        )
        return total * (now / self.workers)

    def owner(self, parameter: Parameter, wanted: tuple[int, int], shares: list[tuple[int, int]]) -> torch.Tensor:
        key = f"owner/{parameter.name}"
        if self.workers == self._schedule.workers:
            return self.of(key, self._schedule.rank, wanted[1] - wanted[0])
        whole = torch.zeros(parameter.elements, dtype=torch.float64 if parameter.dtype == "f64" else torch.float32)
        for rank, (start, end) in enumerate(shares):
            if end > start:
                whole[start:end] = self.of(key, rank, end - start)
        return whole[wanted[0] : wanted[1]]

    def of(self, key: str, rank: int, elements: int) -> torch.Tensor:
        tensor = self._state.get(f"{key}/rank{rank}")
        if tensor is None:
            raise ExchangeError(
                "RX0606",
                f"the state has no {key}/rank{rank}: it was saved by {self.workers} workers with another rank's keys",
                f"pass the union of the state_dicts of all {self.workers} workers",
            )  # fmt: skip
        return _sized(key, tensor, elements)

    def number(self, key: str) -> float:
        if key not in self._state:
            raise ExchangeError("RX0606", f"the state has no {key}", "pass what relaxed.state_dict() returned")
        return float(self._state[key])

    def any(self, key: str, elements: int) -> torch.Tensor:
        """A value that all workers share: this rank's copy, or any."""
        ranks = [self._schedule.rank, *range(self.workers)]
        found = next((self._state[k] for r in ranks if (k := f"{key}/rank{r}") in self._state), None)
        if found is None:
            raise ExchangeError("RX0606", f"the state has no {key}", "pass what relaxed.state_dict() returned")
        return _sized(key, found, elements)


def _sized(key: str, tensor: torch.Tensor, elements: int) -> torch.Tensor:
    if tensor.numel() != elements:
        raise ExchangeError(
            "RX0606", f"{key} has {tensor.numel()} elements in the state and {elements} here",
            "load a state of the same model",
        )  # fmt: skip
    return torch.as_tensor(tensor)


def _another_plan(what: str) -> ExchangeError:
    return ExchangeError("RX0606", f"the state is another plan's: it has {what}", "load it with the plan that saved it")
