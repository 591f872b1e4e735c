"""What only the stage behind typing refuses is shown like all else."""

from __future__ import annotations

import pytest

from relaxc import pipeline
from relaxc.language.diagnostics import SpecError
from relaxc.language.render import render_text
from relaxc.language.source import Source
from relaxc.program.passes.paths import to_paths

BLOCKS = "".join(f"  every {n} {{ a += weight }}\n" for n in range(2, 9))
SPEC = f"algorithm crowded() {{\n  state a = 0\n  step\n{BLOCKS}  weight = mean(a)\n}}\nrelax with crowded {{\n}}\n"
SHOWN = """\
error[RX0340]: too many combinations of every, phase and after: 128; at most 64
  --> crowded.relax:1:11
   |
 1 | algorithm crowded() {
   |           ^^^^^^^
...
13 | relax with crowded {
   | -------------------- run here
   = help: nest blocks, or give them one period
"""


def test_too_many_paths() -> None:
    typed = pipeline.to_typed(pipeline.to_spec(Source("crowded.relax", SPEC), {}))
    with pytest.raises(SpecError) as error:
        to_paths(typed.program)
    assert render_text(error.value.diagnostics) == SHOWN
