"""An iteration in lanes: what is busy when. Predicted and measured ones have the same form."""

from __future__ import annotations

from dataclasses import dataclass

LANES = ("compute", "encode", "link", "decode")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that keeps a lane busy from `start` to `end`, in seconds after the iteration begins. `bucket` is -1
    where there is none."""

    lane: str
    start: float
    end: float
    label: str
    bucket: int = -1


@dataclass(frozen=True, slots=True)
class Timeline:
    """`iteration` is the time from one iteration to the next, `alone` what it would be without an exchange, `bound`
    the lane that the rest waits for. Where an exchange runs only in some iterations, times are means over a period
    and spans those of an iteration that exchanges."""

    spans: tuple[Span, ...]
    iteration: float
    alone: float
    bound: str

    @property
    def exposed(self) -> float:
        return max(self.iteration - self.alone, 0.0)
