"""The file of `arrows("file")`: a directed edge per line."""

from __future__ import annotations

from collections import defaultdict
from math import fsum

from relaxc.topology.edges import Edge, EdgesError, edges_and_lines
from relaxc.topology.kinds import SLACK


def arrows_of_text(text: str) -> tuple[Edge, ...]:
    """The arrows of a file's text, which are the arguments of a Topology `arrows`: `i j` or `i j weight` per line, `#`
    starts a comment: worker i sends to worker j, which gets that weight of what i has. All have weights or none has.

    Raises EdgesError.
    """
    arrows, lines = edges_and_lines(text)
    _check_repeated(arrows, lines)
    _check_shares(arrows, lines)
    return tuple(arrows)


def _check_repeated(arrows: list[Edge], lines: list[int]) -> None:
    seen: dict[tuple[int, int], int] = {}
    for (i, j, *_), line in zip(arrows, lines, strict=True):
        if (before := seen.setdefault((i, j), line)) != line:
            raise EdgesError(line, f"the arrow {i} {j} is in line {before} already")


def _check_shares(arrows: list[Edge], lines: list[int]) -> None:
    """A worker can't give away more than it has."""
    shares: dict[int, list[float]] = defaultdict(list)
    for (sender, _, *weight), line in zip(arrows, lines, strict=True):
        shares[sender] += weight
        if (total := fsum(shares[sender])) > 1 + SLACK:
            raise EdgesError(
                line, f"what worker {sender} sends adds up to {total:g} here, and 1 is all it has{_why(arrows)}"
            )


def _why(arrows: list[Edge]) -> str:
    """Shares that add up for each receiver make another matrix, a row-stochastic one."""
    heard: dict[int, list[float]] = defaultdict(list)
    for _, receiver, *weight in arrows:
        heard[receiver] += weight
    if any(fsum(weights) > 1 + SLACK for weights in heard.values()):
        return ""
    return "; these add up for each receiver, with which the mean of the workers would not be kept"
