"""A spec that has lost accuracy in the convergence runs says so in its comment, with the figure."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from relaxc.resources import folder

KEPT = json.loads((Path(__file__).parents[1] / "benchmarks" / "convergence.json").read_text())
LOSES = 0.01
"""Nats by which a held-out loss lies above allreduce's, the mean over seeds, and counts as lost."""
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))


def loss(spec: str) -> float:
    return statistics.mean(KEPT[f"{spec}/equal/4/simulated/{seed}"]["loss"] for seed in range(3))


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_lost_is_said(spec: str) -> None:
    text = (folder("specs") / f"{spec}.relax").read_text()
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    said = f"its held-out loss came to {loss(spec):.2f}" in comment
    assert said or loss(spec) - loss("allreduce") <= LOSES
    assert len(text.splitlines()) <= 50, "a page"
