from __future__ import annotations

from pathlib import Path

from relaxc.build import cpu
from relaxc.build.cpu import Cpu


def test_text_and_back() -> None:
    here = Cpu("x86_64", frozenset({"fma", "avx2"}))
    assert str(here) == "x86_64 avx2 fma"
    assert cpu.parse(str(here)) == here


def test_macros_become_the_names_of_cpuinfo() -> None:
    macros = frozenset({"__AVX2__", "__BMI__", "__LZCNT__", "__AVX512F__", "__AVX512VNNI__", "__SSE3__"})
    assert cpu.from_macros(macros, "x86_64").flags == {"avx2", "bmi1", "abm", "avx512f", "avx512_vnni", "pni"}


def test_an_instruction_set_newer_than_the_table_is_kept_and_the_rest_is_not() -> None:
    macros = frozenset({"__AVX99__", "__PKU__", "__STDC__", "__znver3__"})
    assert cpu.from_macros(macros, "x86_64").flags == {"avx99"}


def test_only_flags_of_every_core_count(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nflags\t\t: fpu avx avx2\n\nprocessor\t: 1\nflags\t\t: fpu avx\n")
    assert cpu.cpuinfo_flags(path) == {"fpu", "avx"}


def test_arm_says_features(tmp_path: Path) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text("processor\t: 0\nFeatures\t: fp asimd sve\n")
    assert cpu.cpuinfo_flags(path) == {"fp", "asimd", "sve"}


def test_no_cpuinfo_means_no_flags(tmp_path: Path) -> None:
    assert cpu.cpuinfo_flags(tmp_path / "absent") == frozenset()


def test_lacking() -> None:
    small, large = Cpu("x86_64", frozenset({"avx"})), Cpu("x86_64", frozenset({"avx", "avx2", "fma"}))
    assert cpu.lacking(large, small) == ("avx2", "fma")
    assert cpu.lacking(small, large) == ()
    assert cpu.lacking(Cpu("aarch64", frozenset()), large) == ("aarch64",)
