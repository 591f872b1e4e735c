"""What a plan must remember: residuals, results that have not landed, the iteration.

Keys are flat: `residual/NAME/rankR` (a worker's own losses), `owner/NAME/rankR` (the owner's, for the elements that it
owns), `late/B/NAME/rankR` (the result of B iterations before the newest, in its own loss scale `late/B/scale`, and
`late/B/landed/rankR`, which parameters had a gradient), numbers `workers`, `iterations`, `scale`; program_state.py has
those of programs. Tensors are flat copies in memory order; residuals are without the loss scale.

Another number of workers: the mean of the workers' residuals is kept, since that is what they would still have added to
the mean; old worker r's goes to new worker r modulo their number. The owners' are one vector, dealt anew. Where a route
leaves an element's losses to some workers, as hierarchies and rings do, these share what all had of it. `machines` are
the workers of a machine in each hierarchy: others count as another number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from relaxc.attach.engine import Running
from relaxc.attach.machines import inners
from relaxc.attach.program_state import OF_PROGRAMS, ProgramState
from relaxc.attach.saved import MACHINES, Saved, another_plan
from relaxc.errors import ExchangeError
from relaxc.manifest import BodyPlan, ExchangePlan, Manifest
from relaxc.schedule.keepers import kept_parts
from relaxc.schedule.schedule import Schedule, residual_of
from relaxc.wire.parameters import Parameter

State = dict[str, Any]
FEEDBACKS = {"residual": ("worker", "both"), "owner": ("both",)}
"""By kind of key, the feedbacks that keep it."""


class Checkpoint:
    """Reads and writes the state of one worker."""

    def __init__(
        self, manifest: Manifest, schedule: Schedule, parameters: tuple[Parameter, ...], running: Running,
        programs: ProgramState | None,
    ) -> None:  # fmt: skip
        self._manifest, self._schedule, self._parameters, self._running = manifest, schedule, parameters, running
        self._programs = programs

    def state(self) -> State:
        engine, rank = self._running.engine, self._schedule.rank
        engine.drain()
        pending = engine.pending()
        state: State = {
            "format": 1, "workers": self._schedule.workers, "iterations": engine.iterations, "scale": engine.scale,
            "late": len(pending),
        }  # fmt: skip
        if counts := inners(self._manifest):
            state[MACHINES] = torch.tensor(counts)
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
        return state | (self._programs.state() if self._programs is not None else {})

    def load(self, state: Mapping[str, Any]) -> None:
        """Raise ExchangeError (RX0606) where `state` is not of this plan and model, before anything is changed."""
        numbers = [state.get(key) for key in ("workers", "iterations", "late")]
        if state.get("format") != 1 or not all(isinstance(n, int) for n in numbers) or state["workers"] < 1:
            raise ExchangeError("RX0606", "this is not the state of a plan", "pass what relaxed.state_dict() returned")
        self._refuse_strangers(state)
        reader = Saved(state, self._schedule.rank, self._schedule.workers, inners(self._manifest))
        new = [self._read_residuals(reader, p) for p in self._parameters]
        rows = self._read_late(reader, int(state["late"]), int(state["iterations"]))
        programs = self._programs.read(reader) if self._programs is not None else None
        engine = self._running.engine
        engine.drain()
        for kept, (worker, owner) in zip(self._running.residuals, new, strict=True):
            for tensor, value in ((kept.worker, worker), (kept.owner, owner)):
                if tensor is not None and value is not None:
                    tensor.copy_(value * engine.scale)
        engine.resume(int(state["iterations"]), rows)
        if self._programs is not None and programs is not None:
            self._programs.load(programs)

    def _read_residuals(self, reader: Saved, parameter: Parameter) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        gradient = self._manifest.bodies[self._schedule.bodies[parameter.number]].gradient
        exchange = gradient.exchange if gradient is not None else None
        here = residual_of(exchange, parameter, self._schedule.workers, self._schedule.rank)
        worker = self._read_own(reader, exchange, parameter) if here.worker else None
        shares = [residual_of(exchange, parameter, reader.workers, rank).owner for rank in range(reader.workers)]
        owns = here.owner[1] > here.owner[0]
        owner = reader.owner(f"owner/{parameter.name}", parameter, here.owner, shares) if owns else None
        return worker, owner

    def _read_own(self, reader: Saved, exchange: ExchangePlan | None, parameter: Parameter) -> torch.Tensor:
        key, parts = f"residual/{parameter.name}", kept_parts(exchange, parameter, *self._where)
        return reader.worker(key, parameter, parts)

    @property
    def _where(self) -> tuple[int, int]:
        return self._schedule.workers, self._schedule.rank

    def _late(self) -> list[Parameter]:
        return [p for p in self._parameters if _delay(self._manifest.bodies[self._schedule.bodies[p.number]])]

    def _slice(self, parameter: Parameter, flat: list[torch.Tensor | None]) -> torch.Tensor:
        buffer = flat[self._running.bucket_of[parameter.number]]
        assert buffer is not None
        offset = self._running.offsets[parameter.number]
        return buffer[offset : offset + parameter.elements]

    def _refuse_strangers(self, state: Mapping[str, Any]) -> None:
        """What this plan has no place for would be lost in silence."""
        bodies = [self._manifest.bodies[b] for b in self._schedule.bodies]
        longest = max((_delay(body) for body in bodies), default=0)
        if state["late"] != min(longest, state["iterations"]):
            raise another_plan(f"{state['late']} late results where this plan delays by {longest}")
        kept = {p.name: _feedback(body) for p, body in zip(self._parameters, bodies, strict=True)}
        for key in state:
            kind, _, rest = key.partition("/")
            name = rest.rpartition("/")[0]
            if kind in OF_PROGRAMS and self._programs is None:
                raise another_plan(f"{key}, for which this plan has no place")
            if kind in FEEDBACKS and kept.get(name, "none") not in FEEDBACKS[kind]:
                raise another_plan(f"{key}, for which this plan has no place")

    def _read_late(self, reader: Saved, count: int, iterations: int) -> list[Any]:
        rows = []
        for back in reversed(range(count)):
            flat = [torch.zeros_like(b[0]) if len(b) > 1 else None for b in self._running.flat]
            for parameter in self._late():
                self._slice(parameter, flat).copy_(reader.any(f"late/{back}/{parameter.name}", parameter.elements))
            census = reader.any(f"late/{back}/landed", len(self._parameters))
            rows.append((iterations - 1 - back, reader.number(f"late/{back}/scale"), census, flat))
        return rows


def _feedback(body: BodyPlan) -> str:
    exchange = body.gradient.exchange if body.gradient is not None else None
    return "none" if exchange is None or exchange.codec is None else exchange.feedback


def _delay(body: BodyPlan) -> int:
    return body.gradient.delay if body.gradient is not None else 0
