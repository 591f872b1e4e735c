"""What a demo trains, the same for each of its runs."""

import json
from dataclasses import asdict, dataclass, field

from relaxc.demo.size import Size


@dataclass(frozen=True)
class Settings:
    """`rate` rises over `warmup` steps and falls in a straight line to `floor` of itself at `steps`, where it stays."""

    steps: int
    size: Size = field(default_factory=Size)
    seed: int = 0
    rate: float = 1e-3
    floor: float = 0.2
    warmup: int = 10
    evaluate_every: int = 7
    held_out_sequences: int = 48
    overtime: float = 1.3
    """A relaxed run may take this many times the steps to reach the loss that is to be reached."""

    def rate_at(self, step: int) -> float:
        """Share of `rate` at a step, from 0."""
        done = min(1.0, step / self.steps)
        return min(1.0, (step + 1) / self.warmup) * (1 - (1 - self.floor) * done)

    def evaluated_after(self, step: int) -> bool:
        return (step + 1) % self.evaluate_every == 0 or step + 1 == self.steps

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Settings":
        fields = json.loads(text)
        return cls(**{**fields, "size": Size(**fields["size"])})


def full(steps: int) -> Settings:
    return Settings(steps=steps)


def quick(steps: int) -> Settings:
    """Small enough for a test: what is shown is that all of it works, not how fast it is."""
    return Settings(steps=steps, size=Size(width=64, layers=2), evaluate_every=4, held_out_sequences=8)
