"""Spec text and places in it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Source:
    """The text of one `.relax` file. `name` is what diagnostics print."""

    name: str
    text: str

    @classmethod
    def read(cls, path: Path) -> Source:
        return cls(str(path), decode(path.read_bytes()))

    def position(self, offset: int) -> tuple[int, int]:
        """Line and column of `offset`, both counted from 1."""
        line = self.text.count("\n", 0, offset) + 1
        return line, offset - (self.text.rfind("\n", 0, offset) + 1) + 1

    def line(self, number: int) -> str:
        """Line `number`, counted from 1, without its line end."""
        lines = _lines(self.text)
        return lines[number - 1].rstrip("\r") if number <= len(lines) else ""


@lru_cache(maxsize=4)
def _lines(text: str) -> list[str]:
    """A large file with many mistakes is split once."""
    return text.split("\n")


def decode(raw: bytes) -> str:
    """UTF-8 text without a byte order mark; bytes that are no UTF-8 become U+FFFD, which the lexer then refuses."""
    return raw.decode("utf-8", errors="replace").removeprefix("\ufeff")


@dataclass(frozen=True, slots=True)
class Span:
    """Half-open range of character offsets in a source."""

    source: Source
    start: int
    end: int

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]

    @property
    def first_line(self) -> Span:
        """Of what is several lines long, the part on its first."""
        stop = self.source.text.find("\n", self.start, self.end)
        return self if stop < 0 else Span(self.source, self.start, stop)

    def to(self, other: Span) -> Span:
        return Span(self.source, self.start, other.end)
