"""What a worker tells the supervisor: one JSON object a line on its standard output."""

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class Preparing:
    """What is under way outside of the clock."""

    what: str


@dataclass(frozen=True)
class Began:
    run: str
    parameters: int


@dataclass(frozen=True)
class Stepped:
    run: str
    step: int
    seconds: float
    """Since the run began, evaluation not counted."""
    loss: float


@dataclass(frozen=True)
class Evaluated:
    run: str
    step: int
    seconds: float
    loss: float
    """Mean over the held-out sequences of all workers, in nats a character."""


@dataclass(frozen=True)
class Ended:
    run: str
    step_seconds: float
    """Median."""
    bytes_sent: float
    """By each worker in each step, as its interface counted them (mean)."""
    predicted_bytes: float


Event = Preparing | Began | Stepped | Evaluated | Ended
_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in (Preparing, Began, Stepped, Evaluated, Ended)}


def to_line(event: Event) -> str:
    return json.dumps({"event": type(event).__name__, **asdict(event)})


def from_line(line: str) -> Event | None:
    """The event in a line; None where a library has printed something of its own."""
    try:
        fields = json.loads(line)
        return _KINDS[fields.pop("event")](**fields)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
