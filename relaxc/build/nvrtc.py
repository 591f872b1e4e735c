"""NVRTC: NVIDIA's compiler as a library, so that neither a CUDA toolkit nor a GPU is needed where kernels are made.

Thirteen C functions, the same since CUDA 11.2, called with ctypes: cuda-bindings has them too, but each release of it
takes one major version of CUDA, where torch's own NVRTC may be of another.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relaxc.errors import BuildError

INSTALL = "pip install 'relaxc[cuda]', or install a CUDA build of torch, which brings it"
FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda/lib")


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """`version` is CUDA's, (13, 0); `architectures` the numbers that it compiles for (80 is sm_80)."""

    path: str
    version: tuple[int, int]
    architectures: tuple[int, ...]

    def __str__(self) -> str:
        return f"NVRTC {self.version[0]}.{self.version[1]}"


@dataclass(frozen=True, slots=True)
class Compiled:
    """`log` is what the compiler said, with registers and spills of each kernel where that was asked for."""

    cubin: bytes
    ptx: str
    log: str


class CompileError(Exception):
    """NVRTC does not take the source; the text is its log."""


def find(major: int | None = None) -> Nvrtc:
    """The NVRTC of this machine: of several the one of CUDA `major`, else the newest.

    Raises BuildError RX0530 where there is none.
    """
    found = _installed(tuple(_candidates()))
    if not found:
        raise BuildError("RX0530", "NVRTC, which compiles kernels for GPUs, was not found", INSTALL)
    fitting = [one for one in found if one.version[0] == major]
    return max(fitting or found, key=lambda one: one.version)


@cache
def _installed(paths: tuple[str, ...]) -> tuple[Nvrtc, ...]:
    return tuple(one for path in paths if (one := _ask(path)) is not None)


def _candidates() -> Iterator[str]:
    """Where packages of NVIDIA's put it, where toolkits do, and what the loader knows."""
    for folder in dict.fromkeys(sys.path):
        yield from map(str, sorted(Path(folder or ".").glob("nvidia/*/lib/libnvrtc.so.*")))
    home = os.environ.get("CUDA_HOME", "")
    for place in (*([f"{home}/lib64"] if home else ()), *FOLDERS):
        yield from map(str, sorted(Path(place).glob("libnvrtc.so.[0-9]*")))
    if known := ctypes.util.find_library("nvrtc"):
        yield known


def _ask(path: str) -> Nvrtc | None:
    try:
        library = ctypes.CDLL(path)
        major, minor, count = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
        library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        library.nvrtcGetNumSupportedArchs(ctypes.byref(count))
        numbers = (ctypes.c_int * count.value)()
        library.nvrtcGetSupportedArchs(numbers)
    except (OSError, AttributeError):  # no library, or one that is older than these functions
        return None
    return Nvrtc(path, (major.value, minor.value), tuple(numbers))


def number_of(nvrtc: Nvrtc, architecture: str) -> int:
    """80 for sm_80. Raises BuildError RX0531 for what this NVRTC does not compile for."""
    named = {f"sm_{number}": number for number in nvrtc.architectures}
    if architecture not in named:
        known = ", ".join(named)
        raise BuildError("RX0531", f"{nvrtc} does not compile for {architecture}", f"it knows {known}")
    return named[architecture]


def compile_source(nvrtc: Nvrtc, source: str, name: str, options: Sequence[str]) -> Compiled:
    """Compile `source`, called `name` in messages. Raises CompileError."""
    library = ctypes.CDLL(nvrtc.path)
    program = ctypes.c_void_p()
    _checked(library, library.nvrtcCreateProgram(
        ctypes.byref(program), source.encode(), name.encode(), 0, None, None
    ))  # fmt: skip
    try:
        given = [option.encode() for option in options]
        status = library.nvrtcCompileProgram(program, len(given), (ctypes.c_char_p * len(given))(*given))
        log = _taken(library, program, "ProgramLog").decode(errors="replace").rstrip("\0")
        if status != 0:
            raise CompileError(log or _named(library, status))
        cubin, ptx = _taken(library, program, "CUBIN"), _taken(library, program, "PTX")
        return Compiled(cubin, ptx.decode().rstrip("\0"), log)
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _taken(library: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    size = ctypes.c_size_t()
    _checked(library, getattr(library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
    room = ctypes.create_string_buffer(max(size.value, 1))
    _checked(library, getattr(library, f"nvrtcGet{what}")(program, room))
    return room.raw[: size.value]


def _checked(library: ctypes.CDLL, status: int) -> None:
    if status != 0:
        raise CompileError(_named(library, status))


def _named(library: ctypes.CDLL, status: int) -> str:
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    text: bytes = library.nvrtcGetErrorString(status)
    return text.decode()
