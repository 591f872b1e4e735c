from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from relaxc import doctor
from relaxc.doctor import State, examine


def by_name() -> dict[str, doctor.Finding]:
    return {finding.name: finding for finding in examine()}


def test_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "cache"))
    found = by_name()
    for name in ("python", "relaxc", "torch", "torch.distributed", "cache", "lark", "jinja2"):
        assert found[name].state is State.OK, found[name]
    assert "gloo" in found["torch.distributed"].detail
    assert str(tmp_path / "cache") in found["cache"].detail
    assert found["runtime"].state is State.WARN


def test_what_is_missing_comes_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No compiler, no torch, no home, a cache that cannot be written, all at once."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')")
    (tmp_path / "cache").write_text("")
    for name in ("HOME", "CXX", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("RELAXC_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(tmp_path))
    found = by_name()
    for name in ("C++ compiler", "torch", "Python.h"):
        assert found[name].state is State.MISSING, found[name]
    assert "not installed" in found["torch"].detail
    assert found["cache"].state is State.WARN
    assert found["demo network"].state is State.WARN
    assert all(finding.help for finding in found.values() if finding.state is not State.OK)


def test_the_table_is_printed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from relaxc.cli_doctor import doctor; doctor()"],
        env={**os.environ, "RELAXC_CACHE": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "python" in done.stdout
    assert "runtime: nothing: the first attach builds it" in done.stdout
