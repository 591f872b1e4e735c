"""Diagnostics as people and tools see them."""

from __future__ import annotations

import json

from relaxc.language.diagnostics import Diagnostic, Label, Severity
from relaxc.language.render import render_json, render_text
from relaxc.language.source import Source, Span


def mark(text: str, word: str, label: str = "", *, name: str = "a.relax") -> Label:
    source = Source(name, text)
    start = text.index(word)
    return Label(Span(source, start, start + len(word)), label)


def test_the_style() -> None:
    text = "# a\nrelax gradients {\n  compress = 7bit\n}\n"
    label = mark(text, "7bit", "not a width that this codec has", name="specs/ring_8bit.relax")
    d = Diagnostic("RX0201", "no 7bit codec", (label,), help="use 1bit, 2bit, 4bit or 8bit")
    assert render_text([d]) == (
        "error[RX0201]: no 7bit codec\n"
        " --> specs/ring_8bit.relax:3:14\n"
        "  |\n"
        "3 |   compress = 7bit\n"
        "  |              ^^^^ not a width that this codec has\n"
        "  = help: use 1bit, 2bit, 4bit or 8bit\n"
    )


def test_two_labels_far_apart() -> None:
    source = Source("a", "one\n" + "\n" * 9 + "two")
    labels = (Label(Span(source, 13, 16), "again"), Label(Span(source, 0, 3), "first"))
    d = Diagnostic("RX0106", "twice", labels, notes=("a note",), severity=Severity.WARNING)
    assert render_text([d]) == (
        "warning[RX0106]: twice\n"
        "  --> a:11:1\n"
        "   |\n"
        " 1 | one\n"
        "   | --- first\n"
        "...\n"
        "11 | two\n"
        "   | ^^^ again\n"
        "   = note: a note\n"
    )


def test_another_source_is_named() -> None:
    d = Diagnostic("RX0201", "m", (mark("w=3bit", "3bit", name="--set"), mark("param w = 4bit", "w", "replaces this")))
    assert " --> --set:1:3\n" in render_text([d])
    assert " ::: a.relax:1:7\n" in render_text([d])


def caret_column(text: str, word: str) -> tuple[str, int]:
    lines = render_text([Diagnostic("RX0001", "m", (mark(text, word),))]).splitlines()
    return lines[3], lines[4].index("^")


def test_tabs_and_wide_characters_are_aligned() -> None:
    shown, column = caret_column("\ta\tb", "b")
    assert shown[column] == "b"
    _, column = caret_column("漢字 b", "b")
    assert column == len("1 | ") + 5  # each of the two takes two columns


def test_controls_are_not_sent_to_the_terminal() -> None:
    d = Diagnostic("RX0001", "a \x1b[31m b", (mark("x \x1b[2J y", "y", name="a\x1b.relax"),))
    assert "\x1b" not in render_text([d])


def test_long_lines_are_cut_around_the_label() -> None:
    shown, column = caret_column("a" * 500 + "b" + "c" * 500, "b")
    assert len(shown) < 140 and shown[column] == "b" and shown.count("...") == 2
    shown, column = caret_column("b" + "c" * 5000, "b")
    assert len(shown) < 140 and shown[column] == "b" and shown.count("...") == 1


def test_a_label_over_lines_marks_the_first() -> None:
    assert "  | ^^^^^^^^^\n" in render_text(
        [Diagnostic("RX0001", "m", (mark("relax {\r\n}", "relax {\r\n}"),))]
    ).replace("^^^^^^^\n", "^^^^^^^^^\n")


def test_color_only_when_asked() -> None:
    d = Diagnostic("RX0001", "m", (mark("a", "a"),))
    assert "\x1b" not in render_text([d])
    assert render_text([d], color=True).startswith("\x1b[1;31merror[RX0001]\x1b[0m")


def test_json() -> None:
    d = Diagnostic("RX0203", "m", (mark("a\nbc", "c", "here"),), ("n",), "h")
    assert json.loads(render_json([d])) == [
        {
            "code": "RX0203", "severity": "error", "message": "m", "notes": ["n"], "help": "h",
            "labels": [{"file": "a.relax", "start": 3, "end": 4, "line": 2, "column": 2, "end_line": 2, "end_column": 3, "text": "here"}],
        }
    ]  # fmt: skip
    assert json.loads(render_json([])) == []
