"""The file of `edges("file")`: an edge per line."""

from __future__ import annotations

from collections import defaultdict
from math import fsum, isfinite

from relaxc.topology.kinds import SLACK

Edge = tuple[int, int] | tuple[int, int, float]


class EdgesError(ValueError):
    """A mistake in an edges file: `line`, counted from 1, and `message`, what the mistake is."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line
        self.message = message


def edges_of_text(text: str) -> tuple[Edge, ...]:
    """The edges of a file's text, which are the arguments of a Topology `edges`: `i j` or `i j weight` per line, `#`
    starts a comment. i and j are ranks from 0; an edge counts in both directions. All edges have weights or none has.

    Raises EdgesError.
    """
    edges, lines = edges_and_lines(text)
    _check_repeated(edges, lines)
    _check_sums(edges, lines)
    return tuple(edges)


def edges_and_lines(text: str) -> tuple[list[Edge], list[int]]:
    """The edges or arrows of a text, each with the line that it stands in. Raises EdgesError."""
    edges: list[Edge] = []
    lines: list[int] = []
    for line, written in enumerate(text.splitlines(), start=1):
        if words := written.partition("#")[0].split():
            edges.append(_edge(words, line))
            lines.append(line)
    if not edges:
        raise EdgesError(1, "no edge in this file; an edge is a line of two ranks, such as 0 1")
    _check_alike(edges, lines)
    return edges, lines


def _edge(words: list[str], line: int) -> Edge:
    if len(words) not in (2, 3):
        raise EdgesError(line, f"an edge is two ranks and perhaps a weight, not {len(words)} words")
    i, j = (_rank(word, line) for word in words[:2])
    if i == j:
        raise EdgesError(line, f"worker {i} is not its own neighbour; its own weight is what the others leave")
    return (i, j) if len(words) == 2 else (i, j, _weight(words[2], line))


def _rank(word: str, line: int) -> int:
    if not (word.isascii() and word.isdigit() and len(word) < 10):
        raise EdgesError(line, f"a rank is a whole number from 0, not {word}")
    return int(word)


def _weight(word: str, line: int) -> float:
    try:
        weight = float(word)
    except ValueError:
        raise EdgesError(line, f"a weight is a number, not {word}") from None
    if not (isfinite(weight) and 0 < weight <= 1):
        raise EdgesError(line, f"a weight is above 0 and at most 1, not {word}")
    return weight


def _check_alike(edges: list[Edge], lines: list[int]) -> None:
    for edge, line in zip(edges, lines, strict=True):
        if len(edge) != len(edges[0]):
            has, had = ("a", "none") if len(edge) == 3 else ("no", "one")
            raise EdgesError(line, f"this edge has {has} weight and that in line {lines[0]} has {had}")


def _check_repeated(edges: list[Edge], lines: list[int]) -> None:
    seen: dict[frozenset[int], int] = {}
    for (i, j, *_), line in zip(edges, lines, strict=True):
        if (before := seen.setdefault(frozenset((i, j)), line)) != line:
            raise EdgesError(line, f"the edge {i} {j} is in line {before} already; an edge counts in both directions")


def _check_sums(edges: list[Edge], lines: list[int]) -> None:
    heard: dict[int, list[float]] = defaultdict(list)
    for (i, j, *weight), line in zip(edges, lines, strict=True):
        for rank in (i, j):
            heard[rank] += weight
            if (total := fsum(heard[rank])) > 1 + SLACK:
                raise EdgesError(line, f"the weights of worker {rank} add up to {total:g} here, and 1 is all there is")
