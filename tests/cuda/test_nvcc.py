"""nvcc compiles what the emulation runs: no spills, nothing in local memory, nothing contracted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from cuda_cases import by_fragments, by_routes, of_specs

from relaxc.emit.cuda import emit_cuda
from relaxc.emit.kernel import BlockKernel
from relaxc.resources import folder

pytestmark = pytest.mark.skipif(
    shutil.which("nvcc") is None and "CI" not in os.environ, reason="no nvcc on this machine"
)
ARCHITECTURE = "sm_80"
FLAGS = (f"-arch={ARCHITECTURE}", "--fmad=false", "-std=c++17", "-Xptxas", "-v", "-diag-suppress", "177")
SPELLED_WITH_FMA = frozenset({"exp", "log", "log2", "power"})
"""Functions of f64 that NVIDIA's library makes of fused operations."""
SAMPLE = [*by_routes()[::9], *by_fragments()[::9], *of_specs()[::29]]


def nvcc(arguments: list[str], where: Path, kernels: list[BlockKernel]) -> str:
    (where / "kernels.cu").write_text(emit_cuda(kernels)[0])
    command = ["nvcc", *arguments, *FLAGS, f"-I{folder('runtime')}", "kernels.cu"]
    made = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=280, check=False)
    assert made.returncode == 0, made.stderr[:4000]
    return made.stderr


@pytest.mark.timeout(300)
def test_no_kernel_spills_or_has_local_memory(tmp_path: Path) -> None:
    said = nvcc(["-cubin", "-o", "kernels.cubin"], tmp_path, SAMPLE)
    compiled = re.findall(r"Compiling entry function '(\w+)'", said)
    assert set(compiled) == {kernel.symbol for kernel in SAMPLE}
    frames = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", said)
    assert len(frames) >= len(compiled)
    assert set(frames) == {("0", "0", "0")}


@pytest.mark.timeout(300)
def test_nothing_is_contracted(tmp_path: Path) -> None:
    plain = [k for k in SAMPLE if not SPELLED_WITH_FMA & {v.op for s in (k.main, k.gather) if s for v in s.values}]
    nvcc(["-ptx", "-o", "kernels.ptx"], tmp_path, plain)
    text = (tmp_path / "kernels.ptx").read_text()
    assert len(plain) > len(SAMPLE) // 2
    assert not re.findall(r"\bfma\.", text)
    assert not re.findall(r"\b(?:div|sqrt|add|mul)\.(?:\w+\.)*(?:ftz|approx|full|sat)\b", text)
    assert set(re.findall(r"\b((?:div|sqrt)\.\w+)\.f(?:32|64)", text)) == {"div.rn", "sqrt.rn"}
