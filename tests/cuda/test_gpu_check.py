"""What `make gpu-check` does, as far as that can be seen without a card."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "gpu_check.py"


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("gpu_check", SCRIPT)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where its dataclasses look
    spec.loader.exec_module(module)
    return module


def test_the_sanitizer_is_given_kernels_and_an_exchange(script: ModuleType) -> None:
    """A test that is renamed would otherwise leave it with nothing, unseen until there is a card."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/gpu", "--collect-only", *script.SANITIZED]
    listed = subprocess.run(command, cwd=script.ROOT, capture_output=True, text=True, check=True).stdout
    for some in ("[route_1_", "[route_40_", "[fragment_2", "test_one_rank_in_other_types"):
        assert some in listed


def test_it_has_both_tools_of_the_sanitizer(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sanitizer = tmp_path / "compute-sanitizer"
    sanitizer.write_text("#!/bin/sh\n")
    sanitizer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    names = [check.name for check in script.checks()]
    assert names == ["runtime", "tests", "kernels", "memcheck", "racecheck"]


def test_what_does_not_pass_or_end_has_failed(script: ModuleType) -> None:
    def outcome(code: str, left: float = 60.0) -> tuple[bool, str]:
        found = script.run(script.Check("tests", (sys.executable, "-c", code), 60), left)
        return found.failed, found.said

    assert outcome("print('3 passed')") == (False, "3 passed")
    assert outcome("print('1 failed'); raise SystemExit(1)") == (True, "1 failed")
    assert outcome("import time; time.sleep(60)", left=5.5) == (True, "did not end in time")
    assert outcome("print('3 passed')", left=1.0) == (True, "left out: no time")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a card")
def test_without_a_card_nothing_was_checked(script: ModuleType) -> None:
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "nothing was checked" in done.stdout
