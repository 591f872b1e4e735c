"""What the runs came to: collected from events, and compared."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from relaxc.demo.events import Began, Ended, Evaluated, Event, Stepped

TITLES = {
    "ddp": "DDP, fp32",
    "fp16": "DDP, fp16 hook",
    "quickstart": "relaxc quickstart",
}


@dataclass
class Outcome:
    """One run; `curve` holds seconds and held-out loss."""

    name: str
    parameters: int = 0
    steps: int = 0
    seconds: float = 0.0
    loss: float = float("nan")
    curve: list[tuple[float, float]] = field(default_factory=list)
    ended: Ended | None = None

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def held_out(self) -> float:
        return self.curve[-1][1] if self.curve else float("nan")


def record(outcomes: dict[str, Outcome], event: Event) -> None:
    match event:
        case Began(run, parameters):
            outcomes[run] = Outcome(run, parameters)
        case Stepped(run, step, seconds, loss):
            outcomes[run].steps, outcomes[run].seconds, outcomes[run].loss = step, seconds, loss
        case Evaluated(run, _, seconds, loss):
            outcomes[run].curve.append((seconds, loss))
        case Ended(run):
            outcomes[run].ended = event
        case _:
            pass


def seconds_to(curve: Sequence[tuple[float, float]], loss: float) -> float | None:
    """When the curve first reaches `loss`, on the straight line between two evaluations; None if it never does."""
    earlier: tuple[float, float] | None = None
    for seconds, reached in curve:
        if reached <= loss:
            if earlier is None or earlier[1] == reached:
                return seconds
            share = (earlier[1] - loss) / (earlier[1] - reached)
            return earlier[0] + share * (seconds - earlier[0])
        earlier = (seconds, reached)
    return None


def target(outcomes: dict[str, Outcome]) -> float:
    """The loss that is to be reached: the first run's last."""
    return next(iter(outcomes.values())).held_out


def shares(outcomes: dict[str, Outcome]) -> dict[str, float | None]:
    """Seconds to the first run's final held-out loss, as shares of what the first run took to it."""
    loss = target(outcomes)
    taken = {name: seconds_to(outcome.curve, loss) for name, outcome in outcomes.items()}
    first = next(iter(taken.values()))
    return {name: None if seconds is None or not first else seconds / first for name, seconds in taken.items()}
