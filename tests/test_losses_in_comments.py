"""What the convergence runs found: of the library as it is now, and a spec that has lost accuracy says so in its
comment, with the figure."""

from __future__ import annotations

import importlib
import json
import statistics
from pathlib import Path
from types import ModuleType

import pytest

from relaxc.resources import folder

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
KEPT = json.loads((BENCHMARKS / "convergence.json").read_text())
RUN = "run `make bench-convergence` and keep its convergence.json"
LOSES = 0.01
"""Nats by which a held-out loss lies above allreduce's, the mean over seeds, and counts as lost."""
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))


@pytest.fixture
def convergence(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return importlib.import_module("convergence")


def test_the_runs_are_of_these_specs(convergence: ModuleType) -> None:
    trials = [*convergence.trials(processes=False), *convergence.trials(processes=True)]
    stale = [trial.name for trial in trials if KEPT.get(trial.name, {}).get("of") != trial.depends_on]
    assert not stale, RUN
    assert set(KEPT) == {trial.name for trial in trials}, "some are of no spec"


def loss(spec: str) -> float:
    seeds = [f"{spec}/equal/4/simulated/{seed}" for seed in range(3)]
    assert set(seeds) <= set(KEPT), RUN
    return statistics.mean(KEPT[name]["loss"] for name in seeds)


@pytest.mark.parametrize("spec", SPECS)
def test_what_was_lost_is_said(spec: str) -> None:
    text = (folder("specs") / f"{spec}.relax").read_text()
    comment = " ".join(line.removeprefix("#").strip() for line in text.splitlines() if line.startswith("#"))
    said = f"its held-out loss came to {loss(spec):.2f}" in comment
    assert said or loss(spec) - loss("allreduce") <= LOSES
    assert len(text.splitlines()) <= 50, "a page"
