"""Where each parameter stands: what it shares with those that run in step with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from relaxc.attach.parameters import ModelParameters
from relaxc.errors import ModelError
from relaxc.manifest import Manifest, PathPlan, ProgramPlan
from relaxc.schedule.programs import head_starts
from relaxc.wire.numbers import names
from relaxc.wire.parameters import elements_before

IGNORED = ("weight_decay", "momentum")


@dataclass(frozen=True)
class Place:
    """Of one parameter: which optimiser, which of its groups, and the head start of each staggered block."""

    optimizer: int
    group: int
    heads: tuple[tuple[int, int], ...]


def places(
    manifest: Manifest, read: ModelParameters, bodies: Sequence[int], optimizers: Sequence[torch.optim.Optimizer],
    workers: int,
) -> list[Place]:  # fmt: skip
    """The place of each parameter. Raise ModelError (RX0414) for a program's parameter that no optimiser has."""
    owner = {
        id(tensor): (number, group)
        for number, optimizer in reversed(list(enumerate(optimizers)))
        for group, settings in enumerate(optimizer.param_groups)
        for tensor in settings["params"]
    }
    before, total = elements_before(read.parameters)
    found = []
    for parameter, tensor in zip(read.parameters, read.tensors, strict=True):
        program = manifest.bodies[bodies[parameter.number]].program
        if program is not None and id(tensor) not in owner:
            raise ModelError(
                "RX0414", f"parameter {parameter.name} is in no optimizer, whose step its program needs",
                "give it to an optimizer that you pass to attach, or freeze it",
            )  # fmt: skip
        heads = head_starts(program, before[parameter.number], total, workers)
        found.append(Place(*owner.get(id(tensor), (-1, -1)), heads))
    return found


def refuse_ignored(
    manifest: Manifest, bodies: Sequence[int], placed: Sequence[Place], optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """A program that makes the update itself would pass over the optimiser's weight decay and momentum in silence.
    Raise ModelError (RX0415)."""
    for body, place in zip(bodies, placed, strict=True):
        program = manifest.bodies[body].program
        if program is None or not any(_updates(program, path) for path in program.paths):
            continue
        settings = optimizers[place.optimizer].param_groups[place.group]
        for name in IGNORED:
            if settings.get(name) and name not in program.settings:
                raise ModelError(
                    "RX0415", f"the program of `{manifest.bodies[body].statement}` makes its own update, without the "
                    f"optimizer's {name} = {settings[name]:g}",
                    f"set {name} to 0, or let the program read optimizer.{name}",
                )  # fmt: skip


def _updates(program: ProgramPlan, path: PathPlan) -> bool:
    """Whether a path has an update of its own in place of the optimizer's: its gradient may be late, and then there is
    none, but it has no use for the learning rate."""
    operations = [o for stage in path.stages.values() for o in stage if o.kind == "compute"]
    numbers = [n for o in operations for n in program.fragments[o.number].numbers]
    read = {name for expression in [*numbers, *(value for _, value in path.numbers)] for name in names(expression)}
    return not path.steps and ("lr" in read or not any(other.steps for other in program.paths))


def reads_settings(program: ProgramPlan) -> bool:
    expressions = [n for fragment in program.fragments for n in fragment.numbers]
    expressions += [value for path in program.paths for _, value in path.numbers]
    expressions += [value for path in program.paths for _, _, value in path.captures]
    return any(name == "lr" or name.startswith("optimizer.") for e in expressions for name in names(e))


def refuse_missing(
    manifest: Manifest, bodies: Sequence[int], placed: Sequence[Place], optimizers: Sequence[torch.optim.Optimizer]
) -> None:
    """Raise ModelError (RX0417) for a setting that a program reads and the optimizer does not have."""
    for body, place in zip(bodies, placed, strict=True):
        program = manifest.bodies[body].program
        for name in program.settings if program is not None else ():
            settings = optimizers[place.optimizer].param_groups[place.group]
            if not isinstance(settings.get(name), SETTING):
                has = ", ".join(key for key, value in settings.items() if isinstance(value, SETTING))
                raise ModelError(
                    "RX0417", f"the optimizer has no number {name}, which the program of "
                    f"`{manifest.bodies[body].statement}` reads as optimizer.{name}", f"it has {has}",
                )  # fmt: skip


SETTING = int | float | torch.Tensor
