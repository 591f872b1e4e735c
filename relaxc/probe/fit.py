"""A line through measured times, by least squares of relative errors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from relaxc.schedule.network import Line


@dataclass(frozen=True, slots=True)
class Fit:
    """`error` is the root mean square of line / measured - 1."""

    line: Line
    error: float


def fit(times: Mapping[int, float]) -> Fit:
    """The line fixed + each * size, neither below 0, that is nearest to `times`, seconds by size, where each counts
    by its own size: a microsecond matters in a short message and not in a long one."""
    line = _least_squares(times)
    if line.fixed < 0:
        line = Line(0.0, _through_zero(times))
    elif line.each < 0:
        line = Line(_level(times), 0.0)
    return Fit(line, error(line, times))


def error(line: Line, times: Mapping[int, float]) -> float:
    return math.sqrt(sum((line.at(size) / time - 1) ** 2 for size, time in times.items()) / len(times))


def _least_squares(times: Mapping[int, float]) -> Line:
    """Minimise sum (a / t + b * n / t - 1)^2."""
    rows = [(1 / time, size / time) for size, time in times.items()]
    aa, ab, bb = (sum(row[i] * row[j] for row in rows) for i, j in ((0, 0), (0, 1), (1, 1)))
    a, b = (sum(row[i] for row in rows) for i in (0, 1))
    determinant = aa * bb - ab * ab
    if determinant <= 1e-12 * aa * bb:  # one size only
        return Line(0.0, _through_zero(times))
    return Line((a * bb - b * ab) / determinant, (aa * b - ab * a) / determinant)


def _through_zero(times: Mapping[int, float]) -> float:
    shares = [size / time for size, time in times.items()]
    return sum(shares) / sum(share * share for share in shares)


def _level(times: Mapping[int, float]) -> float:
    shares = [1 / time for time in times.values()]
    return sum(shares) / sum(share * share for share in shares)
