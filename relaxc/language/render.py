"""Diagnostics as text for people and as JSON for tools. A view: it decides nothing.

error[RX0201]: no 7bit codec
 --> specs/ring_8bit.relax:3:14
  |
3 |   compress = 7bit
  |              ^^^^ not a width that a codec has
  = help: use 1bit, 2bit, 4bit or 8bit
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from relaxc.language.diagnostics import Diagnostic, Label, Severity
from relaxc.language.source import Source, Span

TAB = 4
WIDTH = 120
"""Columns of source that are shown; of a longer line, the part around the label."""

BEFORE = 40
"""Columns of a cut line that are kept before its label."""

CUT = "..."
BOLD, RED, YELLOW, BLUE, PLAIN = "\x1b[1m", "\x1b[1;31m", "\x1b[1;33m", "\x1b[1;34m", "\x1b[0m"


def render_text(diagnostics: Iterable[Diagnostic], color: bool = False) -> str:
    """Each diagnostic as a header, the places it speaks of, notes and help; an empty line between two."""
    painter = Painter(color)
    return "\n".join("".join(f"{line}\n" for line in _diagnostic(d, painter)) for d in diagnostics)


def render_json(diagnostics: Iterable[Diagnostic]) -> str:
    """A JSON array with an object for each diagnostic. Lines and columns count from 1, offsets from 0 in characters."""
    return json.dumps([_object(d) for d in diagnostics], indent=2, ensure_ascii=True) + "\n"


# --- JSON


def _object(d: Diagnostic) -> dict[str, object]:
    return {
        "code": d.code,
        "severity": str(d.severity),
        "message": d.message,
        "labels": [_label_object(label) for label in d.labels],
        "notes": list(d.notes),
        "help": d.help,
    }


def _label_object(label: Label) -> dict[str, object]:
    span = label.span
    line, column = span.source.position(span.start)
    end_line, end_column = span.source.position(span.end)
    return {
        "file": span.source.name, "start": span.start, "end": span.end, "line": line, "column": column,
        "end_line": end_line, "end_column": end_column, "text": label.text,
    }  # fmt: skip


# --- text


@dataclass(frozen=True, slots=True)
class Painter:
    on: bool

    def __call__(self, text: str, color: str) -> str:
        return f"{color}{text}{PLAIN}" if self.on and text else text


def _diagnostic(d: Diagnostic, paint: Painter) -> Iterator[str]:
    color = RED if d.severity is Severity.ERROR else YELLOW
    yield paint(f"{d.severity}[{d.code}]", color) + paint(f": {printable(d.message)}", BOLD)
    rows = [(label, label.span.source.position(label.span.start)[0]) for label in d.labels]
    gutter = len(str(max((line for _, line in rows), default=1)))
    for index, (source, labels) in enumerate(_by_source(d.labels)):
        yield from _snippet(source, labels, d.labels[0], gutter, index > 0, Pen(paint, color))
    margin = " " * (gutter + 1) + paint("=", BLUE)
    for note in d.notes:
        yield f"{margin} note: {printable(note)}"
    if d.help:
        yield f"{margin} help: {printable(d.help)}"


@dataclass(frozen=True, slots=True)
class Pen:
    """`color` is that of the first label."""

    paint: Painter
    color: str


def _by_source(labels: Sequence[Label]) -> list[tuple[Source, list[Label]]]:
    groups: list[tuple[Source, list[Label]]] = []
    for label in labels:
        found = next((group for source, group in groups if source is label.span.source), None)
        if found is None:
            groups.append((label.span.source, [label]))
        else:
            found.append(label)
    return groups


def _snippet(source: Source, labels: list[Label], main: Label, gutter: int, more: bool, pen: Pen) -> Iterator[str]:
    line, column = source.position(labels[0].span.start)
    arrow = pen.paint(":::" if more else "-->", BLUE)
    yield f"{' ' * gutter}{arrow} {printable(source.name)}:{line}:{column}"
    blank = " " * (gutter + 1) + pen.paint("|", BLUE)
    yield blank
    previous = 0
    for number, marks in _by_line(labels):
        if previous and number > previous + 1:
            yield pen.paint("." * 3, BLUE)
        previous = number
        window = _window(source, number, marks[0].span)
        yield f"{pen.paint(f'{number:>{gutter}} |', BLUE)} {window.text}".rstrip()
        for label in marks:
            color = pen.color if label is main else BLUE
            yield f"{blank} {pen.paint(_carets(window, label, '^' if label is main else '-'), color)}".rstrip()


def _by_line(labels: list[Label]) -> list[tuple[int, list[Label]]]:
    """Line numbers in order, each with the labels that start there."""
    lines: dict[int, list[Label]] = {}
    for label in labels:
        lines.setdefault(label.span.source.position(label.span.start)[0], []).append(label)
    return sorted((number, sorted(marks, key=lambda m: m.span.start)) for number, marks in lines.items())


# --- one line of source


@dataclass(frozen=True, slots=True)
class Window:
    """What is shown of a line. `start` is the line's offset in the source, `first` that of the shown part in it."""

    raw: str
    start: int
    first: int
    last: int
    text: str

    def column(self, offset: int) -> int:
        """The column, from 0, in which what is at `offset` of the source is shown."""
        inside = min(max(offset - self.start, self.first), self.last)
        lead = len(CUT) if self.first else 0
        return lead + columns(self.raw[self.first : inside])


def _window(source: Source, number: int, span: Span) -> Window:
    start = _line_start(source, number)
    raw = source.line(number)
    first, last = 0, len(raw)
    if len(raw) > 2 * WIDTH or columns(raw) > WIDTH:  # no need to measure what is so long
        first = max(span.start - start - BEFORE, 0)
        last = _fitting(raw, first)
    shown = expanded(raw[first:last])
    text = (CUT if first else "") + shown + (CUT if last < len(raw) else "")
    return Window(raw, start, first, last, text)


def _line_start(source: Source, number: int) -> int:
    start = 0
    for _ in range(number - 1):
        start = source.text.index("\n", start) + 1
    return start


def _fitting(raw: str, first: int) -> int:
    """The end of the longest part from `first` on that fits."""
    used, last = 0, first
    while last < len(raw) and used < WIDTH:
        used += columns(raw[last], used)
        last += 1
    return last


def _carets(window: Window, label: Label, mark: str) -> str:
    """Marks under what the label spans on its first line, at least one, and its text."""
    start = window.column(label.span.start)
    end = window.column(min(label.span.end, window.start + len(window.raw)))
    return f"{' ' * start}{mark * max(end - start, 1)} {printable(label.text)}".rstrip()


# --- characters


def columns(text: str, start: int = 0) -> int:
    """The width of `text` on a terminal when it begins in column `start`."""
    at = start
    for character in text:
        at += TAB - at % TAB if character == "\t" else _width(character)
    return at - start


def _width(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return (
        len(_shown(character)) if len(_shown(character)) > 1 else 1 + (unicodedata.east_asian_width(character) in "WF")
    )


def _shown(character: str) -> str:
    """The character, or its number where a terminal would do something with it or show nothing."""
    if character == "\ufffd" or (unicodedata.category(character)[0] != "C" and character not in "\u2028\u2029"):
        return character
    return f"<{ord(character):04X}>"


def expanded(text: str) -> str:
    """`text` as it is shown: tabs as blanks, controls as numbers."""
    shown, at = [], 0
    for character in text:
        width = columns(character, at)
        shown.append(" " * width if character == "\t" else _shown(character))
        at += width
    return "".join(shown)


def printable(text: str) -> str:
    """A message on one line that does nothing to the terminal."""
    return "".join(_shown(character) for character in text)
