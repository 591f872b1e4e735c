"""Generated CUDA kernels: one source -> one cubin for each architecture, in the cache."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from relaxc import resources
from relaxc.build import cache, nvrtc
from relaxc.build.kernels import headers
from relaxc.build.nvrtc import Compiled, Nvrtc
from relaxc.build.report import Report, on_stderr
from relaxc.errors import BuildError

KIND = "cubins"
CUDA_SOURCE = "kernels.cu"
CUBIN = "kernels.cubin"
LOG = "kernels.log"
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
"""What a plan carries where nobody says: A100, H100, B200. Others are made at attach."""
FLAGS = (
    "--std=c++17",
    "--fmad=false",  # a fused multiply-add rounds once where the interpreter rounds twice
    "--ftz=false",
    "--prec-div=true",
    "--prec-sqrt=true",
    "--ptxas-options=-v",  # the log says registers and spills of each kernel
)


def build_cubin(source: str, architecture: str, report: Report | None = None, major: int | None = None) -> Path:
    """Compile `source`, which includes relaxrt/ only, for one architecture (sm_80). A tenth of a second; cached.

    Of several NVRTCs the one of CUDA `major` does it. Returns the cubin's path in the cache, beside which stands LOG.
    Raises BuildError: RX0530 no NVRTC, RX0531 it does not know the architecture, RX0532 it does not take the source,
    RX0504 and RX0505 the cache.
    """
    compiler = nvrtc.find(major)
    nvrtc.number_of(compiler, architecture)
    runtime = resources.folder("runtime")
    key = cache.key_of([source, *headers(runtime), *FLAGS, architecture, str(compiler)])

    def make(folder: Path) -> None:
        compiled = compile_for(compiler, source, architecture, cache.log_path(folder, key))
        (folder / CUBIN).write_bytes(compiled.cubin)
        (folder / LOG).write_text(compiled.log)

    return cache.obtain(KIND, key, make, what=f"kernels for {architecture}", report=report or on_stderr) / CUBIN


def compile_for(compiler: Nvrtc, source: str, architecture: str, log: Path) -> Compiled:
    """Raises BuildError RX0532, with what was said in `log`."""
    options = [*FLAGS, f"--gpu-architecture={architecture}", f"--include-path={resources.folder('runtime')}"]
    try:
        return nvrtc.compile_source(compiler, source, CUDA_SOURCE, options)
    except nvrtc.CompileError as error:
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{compiler} {' '.join(options)}\n\n{error}")
        lines = [line for line in str(error).splitlines() if "error" in line] or [str(error)]
        message = f"{compiler} failed for {architecture}: {lines[0]}"
        raise BuildError("RX0532", message, f"this is a bug of relaxc: please report it with {log}") from error


def cubin_name(architecture: str) -> str:
    """The name under which a plan carries a cubin."""
    return f"kernels.{architecture}.cubin"


@dataclass(frozen=True, slots=True)
class Use:
    """What one kernel takes of a multiprocessor; spills and `local` are bytes a thread that go through memory."""

    kernel: str
    registers: int
    spills: int
    local: int


def used(log: str) -> Iterator[Use]:
    """Of each kernel, from what ptxas said of it."""
    for part in re.split(r"Compiling entry function '", log)[1:]:
        local = re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores", part)
        registers = re.search(r"Used (\d+) registers", part)
        if registers is not None:
            stack, spilled = (int(local[1]), int(local[2])) if local else (0, 0)
            yield Use(part.partition("'")[0], int(registers[1]), spilled, stack)
