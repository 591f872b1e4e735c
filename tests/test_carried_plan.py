"""A plan that carries the runtime runs where there is no compiler, and where lark and jinja2 are absent."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaxc.cli import status

TRAIN = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("lark", "jinja2"):
            raise ImportError(f"no {name} here")

sys.meta_path.insert(0, Absent())
import torch, torch.distributed as dist, relaxc
dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", rank=0, world_size=1)
model = torch.nn.Linear(70, 30)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
relaxed = relaxc.load(sys.argv[1]).attach(model, optimizer)
model(torch.ones(1, 70)).sum().backward()
exact = torch.ones(30, 70)
assert torch.equal(model.weight.grad, exact), "a constant block is exact in minmax"
relaxed.detach()
assert not {"lark", "jinja2"} & set(sys.modules)
"""


def test_a_carried_plan_needs_no_compiler(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, empty = tmp_path / "plan", tmp_path / "empty"
    spec = tmp_path / "spec.relax"
    spec.write_text("relax gradients { compress = 8bit }")
    assert status(["compile", str(spec), "-o", str(plan), "--carry-runtime"]) == 0, capsys.readouterr().err
    empty.mkdir()
    without = {**os.environ, "PATH": str(empty), "RELAXC_CACHE": str(tmp_path / "cache")}
    without.pop("CXX", None)
    command = [sys.executable, "-c", TRAIN, str(plan), str(tmp_path / "store")]
    done = subprocess.run(command, env=without, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "cache" / "runtime").exists(), "nothing was built"


def test_a_plan_that_carries_nothing_says_what_is_missing(tmp_path: Path) -> None:
    plan, empty = tmp_path / "plan", tmp_path / "empty"
    spec = tmp_path / "spec.relax"
    spec.write_text("relax gradients { compress = 8bit }")
    assert status(["compile", str(spec), "-o", str(plan)]) == 0
    empty.mkdir()
    without = {**os.environ, "PATH": str(empty), "RELAXC_CACHE": str(tmp_path / "cache")}
    without.pop("CXX", None)
    command = [sys.executable, "-c", TRAIN, str(plan), str(tmp_path / "store")]
    done = subprocess.run(command, env=without, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode != 0
    assert "RX0501" in done.stderr
