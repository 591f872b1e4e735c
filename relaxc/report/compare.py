"""A predicted iteration beside the measured one: how far off each lane is."""

from __future__ import annotations

from dataclasses import dataclass

from relaxc.schedule.timeline import LANES, Timeline, busy

NOTHING = 1e-6
"""Seconds below which a lane does nothing worth a ratio."""


@dataclass(frozen=True, slots=True)
class Error:
    """Of a lane, or of the whole iteration: seconds. `share` is how much of the measured the prediction is off, None
    where nothing was measured."""

    what: str
    predicted: float
    measured: float

    @property
    def share(self) -> float | None:
        return (self.predicted - self.measured) / self.measured if self.measured > NOTHING else None


def errors(predicted: Timeline, measured: Timeline) -> list[Error]:
    """The iteration first, then lane by lane how long it is busy."""
    return [
        Error("iteration", predicted.iteration, measured.iteration),
        Error("exposed", predicted.exposed, measured.exposed),
        *(Error(lane, busy(predicted.spans, lane), busy(measured.spans, lane)) for lane in LANES),
    ]
