"""What simulations say: curves, and which of two gets where first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean

from relaxc.simulate.run import Training


@dataclass(frozen=True)
class Curve:
    """One spec's trainings, one for each seed. `seconds` are those of an iteration, None without a network."""

    name: str
    trainings: tuple[Training, ...]
    seconds: float | None

    @property
    def points(self) -> list[tuple[int, float, float, float]]:
        """(iterations, mean loss, smallest, largest), while all seeds go on."""
        found = []
        for looks in zip(*(t.looks for t in self.trainings), strict=False):
            losses = [look.loss for look in looks]
            found.append((looks[0].iterations, fmean(losses), min(losses), max(losses)))
        return found

    @property
    def diverged(self) -> int | None:
        """After how many iterations the loss of some seed is no number any more."""
        ends = [t.looks[-1].iterations for t in self.trainings if t.diverged]
        return min(ends) if ends else None

    @property
    def last(self) -> float:
        return self.points[-1][1]

    @property
    def least(self) -> float:
        return min(loss for _, loss, _, _ in self.points)

    @property
    def apart(self) -> float:
        return fmean(t.looks[-1].apart for t in self.trainings)

    def reached(self, loss: float) -> float | None:
        """After how many iterations the mean loss is first as low, on the line between looks."""
        points = self.points
        if points[0][1] <= loss:
            return 0.0
        for (before, high, _, _), (after, low, _, _) in pairwise(points):
            if low <= loss < high:
                return before + (after - before) * (high - loss) / (high - low)
        return None


RISE = 0.9
"""Of the first and of the last loss: where one between them was below that, it is told."""


def verdicts(curves: Sequence[Curve]) -> list[str]:
    """The first curve on its own, then against each other one."""
    first, *others = curves
    said = [_alone(curve) for curve in curves]
    return [*said, *(_against(first, other) for other in others if first.diverged is None and other.diverged is None)]


def _alone(curve: Curve) -> str:
    if curve.diverged is not None:
        return f"{curve.name} diverges: its loss is no number after {curve.diverged} iterations"
    start, end = curve.points[0][1], curve.last
    went = "goes" if end < start else "does not converge: it goes"
    rose = f", up from {curve.least:.4g}" if curve.least < RISE * min(start, end) else ""
    return f"{curve.name}: the loss {went} from {start:.4g} to {end:.4g}{rose}; workers end {curve.apart:.2g} apart"


def _against(one: Curve, other: Curve) -> str:
    """Where both have got to, and who was there first."""
    loss = max(one.least, other.least)
    mine, theirs = one.reached(loss), other.reached(loss)
    assert mine is not None and theirs is not None
    said = f"a loss of {loss:.4g} takes {one.name} {mine:.0f} iterations and {other.name} {theirs:.0f}"
    if one.seconds is None or other.seconds is None:
        return said
    times = mine * one.seconds, theirs * other.seconds
    said += f"; over this network {times[0]:.3g} s and {times[1]:.3g} s"
    if min(times) <= 0 or max(times) < 1.01 * min(times):
        return f"{said}: no difference"
    quick, factor = (one, times[1] / times[0]) if times[0] < times[1] else (other, times[0] / times[1])
    return f"{said}: {quick.name} is {factor:.3g}x faster"
