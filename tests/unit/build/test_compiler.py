from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from relaxc.build import compiler, cpu
from relaxc.errors import BuildError

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="no g++ on this machine")


def script(path: Path, body: str) -> Path:
    path.write_text(f"#!{sys.executable}\n{body}\n")
    path.chmod(0o755)
    return path


@needs_compiler
def test_finds_gcc_and_its_idea_of_native(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    found = compiler.find()
    assert found.version.startswith("gcc ")
    assert found.cpu.architecture == cpu.available().architecture


@needs_compiler
def test_what_the_compiler_may_use_this_machine_has() -> None:
    """The two sources of flags have one vocabulary: otherwise a plan is refused where it was made."""
    assert cpu.lacking(compiler.find().cpu, cpu.available()) == ()
    assert compiler.lacking(str(compiler.find().cpu)) == ()


def test_no_compiler_on_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BuildError, match="no C\\+\\+ compiler") as caught:
        compiler.find()
    assert caught.value.code == "RX0501"
    assert "g++" in (caught.value.help or "")
    assert compiler.this_cpu() == cpu.available()


@pytest.mark.parametrize("text", ["/nonexistent/g++", "true", "false"])
def test_a_bad_cxx_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("CXX", text)
    with pytest.raises(BuildError, match=text) as caught:
        compiler.find()
    assert "unset" in (caught.value.help or "")


@needs_compiler
def test_cxx_may_have_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "env g++")
    assert compiler.find().command == ("env", "g++")


def test_a_broken_gpp_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    script(tmp_path / "g++", "raise SystemExit(1)")
    answer = '#define __cplusplus 201703L\\n#define __clang__ 1\\n#define __VERSION__ \\"14\\"\\n#define __x86_64__ 1'
    script(tmp_path / "clang++", f'print("{answer}")')
    assert compiler.find().version == "clang 14"


def test_an_unknown_flag_is_lacking() -> None:
    here = cpu.available()
    assert compiler.lacking(f"{here.architecture} avx99") == ("avx99",)
    assert compiler.lacking("vax") == ("vax",)


def failing(tmp_path: Path, body: str) -> BuildError:
    tool = compiler.Compiler((str(script(tmp_path / "cc", body)),), "gcc 0", cpu.available())
    with pytest.raises(BuildError) as caught:
        compiler.compile_file(tool, ["a.cpp"], tmp_path, tmp_path / "logs" / "a.log")
    return caught.value


def test_the_first_error_and_the_log_are_named(tmp_path: Path) -> None:
    says = "import sys; sys.exit('In file included\\na.cpp:1:2: error: no such thing\\na.cpp:9:9: error: another')"
    error = failing(tmp_path, says)
    assert error.message == "gcc 0 failed: a.cpp:1:2: error: no such thing"
    assert str(tmp_path / "logs" / "a.log") in (error.help or "")
    assert "another" in (tmp_path / "logs" / "a.log").read_text()


def test_a_full_disk_and_a_killed_compiler_get_their_own_advice(tmp_path: Path) -> None:
    assert "free some disk" in (failing(tmp_path, "import sys; sys.exit('error: No space left on device')").help or "")
    assert "MAX_JOBS=1" in (failing(tmp_path, "import os; os.kill(os.getpid(), 9)").help or "")


def test_a_silent_failure_is_still_a_sentence(tmp_path: Path) -> None:
    assert failing(tmp_path, "raise SystemExit(3)").message == "gcc 0 failed: it ended with status 3 and said nothing"
