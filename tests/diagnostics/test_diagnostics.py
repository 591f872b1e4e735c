"""Each spec here says in comments which errors and warnings it has, and on which lines; its `.txt` is what is shown.

`# error: [RX0201] [RX0203]` names the errors whose place is on that line, `# warning: [RX0110]` the warnings.
"""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from relaxc import pipeline
from relaxc.language.diagnostics import Diagnostic, SpecError
from relaxc.language.render import render_text
from relaxc.language.source import Source

HERE = Path(__file__).parent
SPECS = sorted(HERE.glob("*.relax"))
EXPECTED = re.compile(r"# (error|warning): ((?:\[RX\d{4}\] ?)+)")


def found(path: Path) -> tuple[Diagnostic, ...]:
    source = Source(path.name, Source.read(path).text)
    try:
        return pipeline.to_typed(pipeline.to_spec(source, {})).warnings
    except SpecError as error:
        return error.diagnostics


def expected(text: str) -> Counter[tuple[int, str, str]]:
    return Counter(
        (number, match[1], code)
        for number, line in enumerate(text.split("\n"), 1)
        for match in EXPECTED.finditer(line)
        for code in re.findall(r"RX\d{4}", match[2])
    )


def place(d: Diagnostic) -> tuple[int, str, str]:
    span = d.labels[0].span
    return span.source.position(span.start)[0], str(d.severity), d.code


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_codes_and_lines(path: Path) -> None:
    assert Counter(map(place, found(path))) == expected(Source.read(path).text)


@pytest.mark.parametrize("path", SPECS, ids=lambda path: path.stem)
def test_rendered(path: Path, update_golden: bool) -> None:
    shown = render_text(found(path))
    golden = path.with_suffix(".txt")
    if update_golden:
        golden.write_text(shown)
    assert shown == golden.read_text()
