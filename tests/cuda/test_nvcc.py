"""nvcc compiles what the emulation runs: no spills, nothing in local memory, nothing contracted."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import nvcc
import pytest
from cuda_cases import by_fragments, by_routes, of_specs
from cuda_launched import of_a_library

from relaxc.emit.cuda import emit_cuda
from relaxc.resources import folder

pytestmark = pytest.mark.timeout(600)
FLAGS = ("-arch=sm_80", "--fmad=false", "-std=c++17", "-Xptxas", "-v", "-diag-suppress", "177")
SAMPLE = [*by_routes()[::12], *by_fragments()[::12], *of_specs()[::48]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """What ptxas says of the sample, and its PTX."""
    compiler = nvcc.found()
    assert compiler, "install what development needs, which has nvcc: pip install -e '.[dev]'"
    where = tmp_path_factory.mktemp("nvcc")
    (where / "kernels.cu").write_text(emit_cuda(SAMPLE)[0])
    command = [compiler, "-cubin", "--keep", *FLAGS, f"-I{folder('runtime')}", "kernels.cu"]
    made = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=560, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    return made.stderr, _ptx(where)


def _ptx(where: Path) -> str:
    (path,) = where.glob("*.ptx")
    return path.read_text()


def test_no_kernel_spills_or_has_local_memory(compiled: tuple[str, str]) -> None:
    said, ptx = compiled
    entries = re.findall(r"Compiling entry function '(\w+)'", said)
    assert set(entries) == {kernel.symbol for kernel in SAMPLE}
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert len(frames) >= len(entries)
    assert set(frames) == {("0", "0", "0")}
    assert ".local" not in ptx


def test_nothing_is_contracted(compiled: tuple[str, str]) -> None:
    _, ptx = compiled
    functions = {m[1]: m[0] for m in re.finditer(r"\.entry (\w+)\([\s\S]*?\n}", ptx)}
    plain = [kernel for kernel in SAMPLE if not of_a_library(kernel)]
    assert set(functions) == {kernel.symbol for kernel in SAMPLE}
    assert len(plain) > len(SAMPLE) // 2
    for kernel in plain:
        text = functions[kernel.symbol]
        assert not re.findall(r"\bfma\.", text), kernel.symbol
        assert not re.findall(r"\b(?:div|sqrt|add|sub|mul)\.\w+(?:\.\w+)*\.?(?:ftz|approx|full|sat)\b", text), (
            kernel.symbol
        )
        assert set(re.findall(r"\b((?:div|sqrt)\.\w+)\.f(?:32|64)", text)) <= {"div.rn", "sqrt.rn"}, kernel.symbol


def test_conversions_to_integers_saturate(compiled: tuple[str, str]) -> None:
    """Those of floats to 32 bits: by PTX ISA 9.7.9 they are clamped, and 0 for NaN. Codes are cut to fewer bits by what is
    computed in floats, never by a conversion."""
    _, ptx = compiled
    assert set(re.findall(r"\bcvt(?:\.\w+)*\.[su]\d+\.f\d+\b", ptx)) == {"cvt.rzi.s32.f32", "cvt.rzi.s32.f64"}
