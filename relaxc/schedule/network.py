"""What links cost: a line for each, seconds = a + b * bytes, and where they differ one for each pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Line:
    """`at(n)` is fixed + each * n, in seconds."""

    fixed: float
    each: float

    def at(self, n: float) -> float:
        return self.fixed + self.each * n


@dataclass(frozen=True, slots=True)
class Coding:
    """What a codec costs this machine: lines over elements, of encoding, decoding, and of decoding one input of a
    sum."""

    encode: Line
    decode: Line


@dataclass(frozen=True)
class Network:
    """`link` is over bytes, of a message between two workers on different machines, and `inner` within a machine.
    `pairs` has links that differ, by (sender, receiver). `per_machine` workers share a machine's link. `workers` is
    None where it is not said. `codings` are by the text of the codec, with all its arguments; "exact" is plain
    numbers'. `reduce` is a dense all-reduce's own line, over bytes, where it was measured; else it is made from
    `link`. `wire` is what a message costs a core of each end, over bytes: copies, and the system's work."""

    link: Line
    workers: int | None = None
    per_machine: int = 1
    inner: Line | None = None
    pairs: Mapping[tuple[int, int], Line] = field(default_factory=dict)
    reduce: Line | None = None
    codings: Mapping[str, Coding] = field(default_factory=dict)
    source: str = ""
    wire: Line = Line(0.0, 0.0)

    def between(self, sender: int, receiver: int) -> Line:
        if (sender, receiver) in self.pairs:
            return self.pairs[sender, receiver]
        same = self.per_machine > 1 and sender // self.per_machine == receiver // self.per_machine
        return self.inner if same and self.inner is not None else self.link
