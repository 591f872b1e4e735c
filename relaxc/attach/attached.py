"""What `plan.attach` has made for one model, as everything that serves it knows it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from relaxc.attach.engine import Running
from relaxc.attach.failure import Watch
from relaxc.attach.groups import Groups
from relaxc.attach.parameters import ModelParameters
from relaxc.attach.programs import Programs
from relaxc.manifest import Manifest
from relaxc.schedule.schedule import Schedule


@dataclass(frozen=True)
class Attached:
    """`programs` is None where no parameter has one."""

    manifest: Manifest
    model: nn.Module
    read: ModelParameters
    schedule: Schedule
    groups: Groups
    watch: Watch
    running: Running
    programs: Programs | None

    def governed(self, *agreements: str) -> list[nn.Parameter]:
        """The parameters whose weights agree between workers in one of these ways at the end of an iteration."""
        bodies = zip(self.schedule.bodies, self.read.tensors, strict=True)
        return [tensor for body, tensor in bodies if self.manifest.bodies[body].agreement in agreements]
