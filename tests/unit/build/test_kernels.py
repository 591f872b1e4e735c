from __future__ import annotations

import ctypes
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from relaxc.build import compiler, kernels
from relaxc.build.cpu import Cpu
from relaxc.errors import BuildError

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no g++ on this machine")

SOURCE = '#include "relaxrt/abi.h"\nextern "C" int answer() { return int(sizeof(relaxrt_call) > 0) * 42; }\n'


def test_builds_and_loads(root: Path) -> None:
    library = kernels.build_kernels(SOURCE)
    assert library.is_relative_to(root)
    assert ctypes.CDLL(str(library)).answer() == 42
    assert kernels.build_kernels(SOURCE) == library
    assert kernels.build_kernels(SOURCE + "\n") != library


def test_another_cpu_or_compiler_is_another_entry(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = compiler.find()
    library = kernels.build_kernels(SOURCE)
    for other in (replace(here, cpu=Cpu("x86_64", frozenset({"avx99"}))), replace(here, version="gcc 99")):
        monkeypatch.setattr(kernels, "find", lambda other=other: other)
        assert kernels.build_kernels(SOURCE) != library


def test_another_header_is_another_entry(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = kernels.build_kernels(SOURCE)
    copy = tmp_path / "runtime"
    shutil.copytree(kernels.resources.folder("runtime") / "relaxrt", copy / "relaxrt")
    (copy / "relaxrt" / "abi.h").open("a").write("// changed\n")
    monkeypatch.setattr(kernels.resources, "folder", lambda name: copy)
    assert kernels.build_kernels(SOURCE) != library


def test_an_error_names_its_line_and_a_log_that_stays(root: Path) -> None:
    with pytest.raises(BuildError, match=r"kernels\.cpp:1:\d+: error:") as caught:
        kernels.build_kernels("int f( {\n")
    log = Path((caught.value.help or "").removeprefix("the log is "))
    assert log.is_relative_to(root)
    assert "kernels.cpp:1" in log.read_text()
