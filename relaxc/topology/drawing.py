"""A topology as a small text picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.topology.graphs import torus_shape
from relaxc.topology.kinds import Row, directed, inner, pattern, period, rows
from relaxc.topology.topology import Topology

LINE = 16
"""Ranks in a line of a picture."""
LISTED = 32
"""Workers in a list before it is cut short."""
ROUNDS = 4
"""Rounds that are drawn of a topology that changes."""


def draw(topology: Topology, workers: int) -> str:
    """Some lines, no line end at the last: a ring or chain as a line of ranks, a torus as a grid, others as a list of
    who hears whom, what changes as a few rounds. Random rounds are those of seed 0."""
    if topology.name == "lazy":
        (lazy,) = inner(topology)
        return draw(lazy, workers) + "\nlazy: each worker keeps half of its own, (I + W) / 2"
    if workers == 1:
        return "0, alone"
    return "\n".join(_lines(topology, workers))


def _lines(topology: Topology, workers: int) -> Iterator[str]:
    if period(topology, workers) != 1:
        yield from _rounds(topology, workers)
    elif topology.name in ("ring", "chain"):
        yield from _line(range(workers), closed=topology.name == "ring" and workers > 2)
    elif topology.name == "torus":
        yield from _grid(*torus_shape(workers))
    elif topology.name == "complete":
        yield f"each of 0 to {workers - 1} with all others, {_number(1 / workers)} each"
    else:
        yield from _list(topology, workers)


def _line(ranks: Sequence[int], closed: bool) -> Iterator[str]:
    """0 - 1 - 2 - (0): a rank in brackets is the one that the line comes back to."""
    for start in range(0, len(ranks), LINE):
        last = start + LINE >= len(ranks)
        end = f" - ({ranks[0]})" if last and closed else "" if last else " -"
        yield " - ".join(map(str, ranks[start : start + LINE])) + end


def _grid(down: int, across: int) -> Iterator[str]:
    """Rows of ranks; a side of two has one edge, a longer one comes back to where it began."""
    width = len(str(down * across - 1))
    shown = min(across, LINE)
    for row in range(min(down, LISTED)):
        ranks = [f"{row * across + column:{width}}" for column in range(shown)]
        end = " - ..." if shown < across else f" - ({row * across})" if across > 2 else ""
        yield " - ".join(ranks) + end
        if row + 1 < down:
            yield (" " * 3).join(["|".rjust(width)] * shown)
    if down > LISTED:
        yield f"... {down} rows of {across}"
    elif down > 2:
        yield (" " * 3).join(["|".rjust(width)] * shown)
        yield " ".join(f"({column})".rjust(width + 2) for column in range(shown)).removeprefix(" ")


def _list(topology: Topology, workers: int) -> Iterator[str]:
    verb = "hears" if directed(topology) else "-"
    for rank, row in enumerate(rows(topology, workers, 0, 0)[:LISTED]):
        yield f"{rank} {verb} {_heard(row, rank)}; own weight {_number(dict(row)[rank])}"
    if workers > LISTED:
        yield f"... {workers} workers"


def _heard(row: Row, rank: int) -> str:
    """The others in a row: their weight once where it is the same for all."""
    others = [(peer, _number(weight)) for peer, weight in row if peer != rank][: LINE + 1]
    words = {word for _, word in others}
    cut = ", ..." if len(others) > LINE else ""
    if len(words) == 1:
        return f"{', '.join(str(peer) for peer, _ in others[:LINE])}{cut} ({words.pop()})"
    return ", ".join(f"{peer} ({word})" for peer, word in others[:LINE]) + cut if others else "nobody"


def _number(weight: float) -> str:
    """1/5 where it is that, else three digits."""
    part = round(1 / weight) if weight > 0 else 0
    return f"1/{part}" if part > 1 and abs(part * weight - 1) < 1e-9 else f"{weight:.3g}"


def _rounds(topology: Topology, workers: int) -> Iterator[str]:
    again = period(topology, workers)
    for round in range(min(ROUNDS, again or ROUNDS)):
        yield f"round {round}: {_meetings(rows(topology, workers, round, 0), directed(topology))}"
    if again is None:
        count = pattern(topology, workers)
        often = "each round" if count == 1 else f"every {count} rounds"
        yield f"drawn anew {often}, from the seed (here 0)"
    else:
        yield f"the same again after {again} rounds"


def _meetings(matrix_rows: Sequence[Row], arrows: bool) -> str:
    sign = "<" if arrows else "-"
    met = [(i, j) for i, row in enumerate(matrix_rows) for j, _ in row if (i < j or arrows) and i != j]
    alone = [str(rank) for rank, row in enumerate(matrix_rows) if len(row) == 1]
    meetings = _some([f"{i}{sign}{j}" for i, j in met])
    return ", ".join([*([meetings] if met else []), *([f"alone: {_some(alone)}"] if alone else [])])


def _some(words: Sequence[str]) -> str:
    return " ".join(words[:LINE]) + (" ..." if len(words) > LINE else "")
