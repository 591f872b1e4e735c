"""When a model's gradients are there and its weights are needed: what `trace` finds out, and a schedule is fitted
to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ParameterTimes:
    """`ready` is when the gradient is final, in seconds after backward begins; `needed` when the weight is first
    read, in seconds after forward begins; `module` is the dotted name of the module that reads it then. A parameter
    that takes no part has `ready` and `needed` None."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    ready: float | None
    needed: float | None
    module: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """One iteration of a model without an exchange; all times in seconds. `how` is torch.fx, torch.export or
    recorded; `why` says why what comes before it was not used, a line each. `estimated`: times are made from
    operations and bytes, not measured. `late_gradients`: hooks fire only after the whole backward, as under
    torch.compile of the whole model."""

    forward: float
    backward: float
    step: float
    parameters: tuple[ParameterTimes, ...]
    how: str
    why: tuple[str, ...] = ()
    estimated: bool = False
    device: str = "cpu"
    late_gradients: bool = False

    @property
    def iteration(self) -> float:
        return self.forward + self.backward + self.step
