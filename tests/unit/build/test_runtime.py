"""The build of the runtime, on a small stand-in for runtime/*.cpp: the real one takes a minute and has its own tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from relaxc.build import compiler, runtime, torch_flags
from relaxc.errors import BuildError

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="no g++ on this machine")

BINDING = """
#include <Python.h>
#include "answer.h"
static PyObject* answer(PyObject*, PyObject*) { return PyLong_FromLong(the_answer()); }
static PyMethodDef methods[] = {{"answer", answer, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "relaxc_runtime", nullptr, -1, methods};
PyMODINIT_FUNC PyInit_relaxc_runtime() { return PyModule_Create(&module); }
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, root: Path) -> Path:
    folder = tmp_path / "runtime"
    (folder / "relaxrt").mkdir(parents=True)
    (folder / "answer.h").write_text("int the_answer();\n")
    (folder / "answer.cpp").write_text('#include "answer.h"\nint the_answer() { return 42; }\n')
    (folder / "binding.cpp").write_text(BINDING)
    monkeypatch.setattr(runtime.resources, "folder", lambda name: folder)
    return folder


@pytest.fixture
def unloaded() -> Iterator[None]:
    """The real runtime may be in this process already, and the stand-in must not stay."""
    real = sys.modules.pop(runtime.MODULE, None)
    yield
    sys.modules.pop(runtime.MODULE, None)
    if real:
        sys.modules[runtime.MODULE] = real


def test_built_once_with_one_line_and_loaded(sources: Path, unloaded: None) -> None:
    said: list[str] = []
    path = runtime.build_runtime(said.append)
    assert len(said) == 1
    assert "once; takes about" in said[0]
    assert runtime.build_runtime(said.append) == path
    assert len(said) == 1
    assert runtime.load_runtime(path).answer() == 42


def test_a_header_that_nothing_includes_changes_nothing(sources: Path) -> None:
    before = runtime.Sources.read().digest
    (sources / "relaxrt" / "kernel.h").write_text("// of generated kernels\n")
    assert runtime.Sources.read().digest == before
    (sources / "answer.h").write_text('#include "relaxrt/kernel.h"\nint the_answer();\n')
    included = runtime.Sources.read().digest
    (sources / "relaxrt" / "kernel.h").write_text("// changed\n")
    assert len({before, included, runtime.Sources.read().digest}) == 3


def test_one_changed_file_is_compiled_alone(sources: Path, root: Path) -> None:
    first = runtime.build_runtime(lambda line: None)
    (sources / "answer.cpp").write_text('#include "answer.h"\nint the_answer() { return 43; }\n')
    assert runtime.build_runtime(lambda line: None) != first
    objects = [p for p in (root / "objects").iterdir() if not p.name.startswith(".")]
    assert len(objects) == 3


def test_another_torch_is_another_runtime(sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    here = runtime.runtime_identity()
    monkeypatch.setattr(torch, "__version__", "9.9.9")
    assert runtime.runtime_identity() != here


def test_a_cached_runtime_needs_no_compiler(sources: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = runtime.build_runtime(lambda line: None)
    monkeypatch.setenv("CXX", "/nonexistent/g++")
    assert runtime.build_runtime() == path
    (sources / "answer.h").write_text("int the_answer();  // changed\n")
    with pytest.raises(BuildError) as caught:
        runtime.build_runtime()
    assert caught.value.code == "RX0501"


def test_a_carried_runtime_fits_only_its_torch(sources: Path, tmp_path: Path) -> None:
    assert runtime.carried_runtime(tmp_path) is None
    (tmp_path / runtime.carried_name("0" * 24)).write_bytes(b"another torch's")
    assert runtime.carried_runtime(tmp_path) is None
    mine = tmp_path / runtime.carried_name(runtime.runtime_identity())
    mine.write_bytes(b"mine")
    assert runtime.carried_runtime(tmp_path) == mine


def test_a_failing_compile_names_the_file_and_a_log(sources: Path, root: Path) -> None:
    (sources / "answer.cpp").write_text("int the_answer( {\n")
    with pytest.raises(BuildError, match=r"answer\.cpp:1:\d+: error:") as caught:
        runtime.build_runtime(lambda line: None)
    assert Path((caught.value.help or "").removeprefix("the log is ")).is_file()


def test_a_library_that_does_not_load(tmp_path: Path, unloaded: None) -> None:
    path = tmp_path / "relaxc_runtime.so"
    path.write_bytes(b"not a library")
    with pytest.raises(BuildError, match="does not load") as caught:
        runtime.load_runtime(path)
    assert caught.value.code == "RX0507"
    assert runtime.MODULE not in sys.modules


def test_no_python_headers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch_flags.sysconfig, "get_path", lambda name: str(tmp_path))
    with pytest.raises(BuildError, match="headers of Python") as caught:
        torch_flags.python_include()
    assert "python3-dev" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("module", "says"),
    [
        ("raise ModuleNotFoundError(name='torch')", "not installed"),
        ("raise OSError('libc10.so: cannot open')", "does not load: libc10"),
    ],
)
def test_no_torch_or_a_broken_one(tmp_path: Path, module: str, says: str) -> None:
    (tmp_path / "torch.py").write_text(module)
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\nfrom relaxc.build.runtime import load_runtime\nload_runtime()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "BuildError: RX0502" in done.stderr
    assert says in done.stderr


def test_the_standard_is_torchs_own() -> None:
    assert torch_flags._standard("  - C++ Version: 202002\n") == "c++20"
    assert torch_flags._standard("  - C++ Version: 201703\n") == "c++17"
    assert torch_flags._standard("") == "c++17"


@pytest.mark.parametrize(("version", "flags"), [("gcc 12.2.0", ["-fopenmp"]), ("clang 15.0.6", [])])
def test_the_compiler_that_brings_openmp_is_asked_for_it(version: str, flags: list[str]) -> None:
    assert runtime.threading(compiler.Compiler(("c++",), version, compiler.this_cpu())) == flags


def test_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    assert runtime.jobs(3) == 3
    assert runtime.jobs(20) == 8
    monkeypatch.setenv("MAX_JOBS", "1")
    assert runtime.jobs(20) == 1


def test_find_is_asked_for_the_compiler_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "g++")
    assert compiler.find().command == ("g++",)


def test_only_local_rank_0_speaks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    runtime.on_stderr("hello")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("LOCAL_RANK", "0")
    runtime.on_stderr("hello")
    assert capsys.readouterr().err == "relaxc: hello\n"
