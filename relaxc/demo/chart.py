"""A chart of several curves in plain characters: one mark a series, so that it reads without colour."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

MARKS = "o+#*x@"
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    name: str
    points: Sequence[Point]
    """In order of x."""


@dataclass(frozen=True)
class Axes:
    """The rectangle shown, and how many characters it has."""

    left: float
    right: float
    bottom: float
    top: float
    width: int
    height: int

    def column(self, x: float) -> int:
        return round((x - self.left) / (self.right - self.left) * (self.width - 1))

    def row(self, y: float) -> int:
        """From the top."""
        return round((self.top - y) / (self.top - self.bottom) * (self.height - 1))

    def x_at(self, column: int) -> float:
        return self.left + (self.right - self.left) * column / (self.width - 1)

    def y_at(self, row: int) -> float:
        return self.top - (self.top - self.bottom) * row / (self.height - 1)


def interpolate(points: Sequence[Point], x: float) -> float | None:
    """The height of the line through `points` at `x`; None beyond its ends."""
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= x <= x1:
            return y0 if x1 == x0 else y0 + (y1 - y0) * (x - x0) / (x1 - x0)
    return None


def axes(series: Sequence[Series], width: int, height: int) -> Axes:
    """From 0 to the largest x, and over all heights; never empty."""
    xs = [x for one in series for x, _ in one.points]
    ys = [y for one in series for _, y in one.points]
    bottom, top = min(ys), max(ys)
    return Axes(0.0, max(xs) or 1.0, bottom, top if top > bottom else bottom + 1.0, width, height)


def cells(series: Sequence[Series], frame: Axes) -> list[list[int | None]]:
    """For each character, which series is there; a later series is drawn over an earlier one."""
    grid: list[list[int | None]] = [[None] * frame.width for _ in range(frame.height)]
    for index, one in enumerate(series):
        for column in range(frame.width):
            y = interpolate(one.points, frame.x_at(column))
            if y is not None:
                grid[frame.row(y)][column] = index
        for x, y in one.points:
            grid[frame.row(y)][frame.column(x)] = index
    return grid


def x_labels(frame: Axes, count: int = 5) -> str:
    """Numbers under the axis, each beginning at its column."""
    decimals = 0 if frame.right - frame.left >= count else 2
    line = [" "] * (frame.width + 8)
    for column in (round(i * (frame.width - 1) / (count - 1)) for i in range(count)):
        text = f"{frame.x_at(column):.{decimals}f}"
        line[column : column + len(text)] = text
    return "".join(line).rstrip()


def draw(series: Sequence[Series], *, x: str, y: str, width: int = 64, height: int = 16) -> list[str]:
    """Lines of text; `x` and `y` say what the axes are."""
    frame = axes(series, width, height)
    lines = [y]
    for row, line in enumerate(cells(series, frame)):
        label = f"{frame.y_at(row):7.3f}" if row % 3 == 0 or row == height - 1 else " " * 7
        lines.append(f"{label} │" + "".join(" " if i is None else MARKS[i % len(MARKS)] for i in line).rstrip())
    lines.append(" " * 8 + "└" + "─" * width)
    lines.append(" " * 9 + x_labels(frame))
    lines.append(" " * 9 + x.rjust(width))
    lines.append(" " * 9 + "   ".join(f"{MARKS[i % len(MARKS)]} {one.name}" for i, one in enumerate(series)))
    return lines
