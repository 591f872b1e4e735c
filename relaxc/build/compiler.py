"""The C++ compiler of this machine, and the processor that it and we see."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from relaxc.build import cpu
from relaxc.build.cpu import Cpu
from relaxc.errors import BuildError

CANDIDATES = ("g++", "c++", "clang++")
INSTALL = "install one (on Debian: apt-get install g++), or name one in CXX"
QUERY = ("-march=native", "-x", "c++", "-dM", "-E", os.devnull)
"""Prints every predefined macro: version, architecture and resolved flags in one run of some 20 ms."""


@dataclass(frozen=True, slots=True)
class Compiler:
    """`command` is what is run, `version` one line that names the compiler, `cpu` what `-march=native` means to it."""

    command: tuple[str, ...]
    version: str
    cpu: Cpu


def find() -> Compiler:
    """$CXX where it is set, else the first of g++, c++, clang++ that works.

    Raises BuildError RX0501 where there is none, or where CXX names something that is no C++ compiler.
    """
    return _find(os.environ.get("CXX", "").strip(), os.environ.get("PATH", os.defpath))


@cache
def _find(chosen: str, path: str) -> Compiler:
    if chosen:
        return _chosen(chosen)
    for name in CANDIDATES:
        if (full := shutil.which(name, path=path)) and (compiler := _ask((full,))):
            return compiler
    raise BuildError("RX0501", "no C++ compiler was found: neither CXX nor g++, c++ or clang++", INSTALL)


def _chosen(text: str) -> Compiler:
    if compiler := _ask(tuple(shlex.split(text))):
        return compiler
    message = f"CXX is {text!r}, which is no C++ compiler that works"
    raise BuildError("RX0501", message, "set CXX to g++ or clang++, or unset it")


def _ask(command: tuple[str, ...]) -> Compiler | None:
    try:
        answer = subprocess.run([*command, *QUERY], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    macros = dict(line.split(" ", 2)[1:3] for line in answer.splitlines() if line.count(" ") >= 2)
    if "__cplusplus" not in macros:
        return None
    family = "clang" if "__clang__" in macros else "gcc"
    resolved = cpu.from_macros(frozenset(k for k, v in macros.items() if v == "1"), _architecture(macros))
    return Compiler(command, f"{family} {macros.get('__VERSION__', '').strip(chr(34))}", resolved)


def _architecture(macros: dict[str, str]) -> str:
    """What the compiler compiles for, in the words of `uname -m`; a cross compiler differs from the machine."""
    for name in ("x86_64", "aarch64"):
        if f"__{name}__" in macros:
            return name
    return cpu.available().architecture


def this_cpu() -> Cpu:
    """What this machine can run: /proc/cpuinfo, and what a compiler sees where there is one. Never raises."""
    seen = cpu.available()
    try:
        resolved = find().cpu
    except BuildError:
        return seen
    return Cpu(seen.architecture, seen.flags | resolved.flags) if resolved.architecture == seen.architecture else seen


def lacking(needed: str) -> tuple[str, ...]:
    """The flags in `needed` (a manifest's `cpu`) that this machine lacks; empty where such a library can be run."""
    missing = cpu.lacking(cpu.parse(needed), cpu.available())
    # Asking the compiler costs a process, so only where /proc/cpuinfo does not settle it.
    return cpu.lacking(cpu.parse(needed), this_cpu()) if missing else ()


def compile_file(compiler: Compiler, arguments: list[str], folder: Path, log: Path) -> None:
    """Run the compiler in `folder`; everything that it says goes to `log`.

    Raises BuildError RX0503 with the first error and the path of the log.
    """
    try:
        done = subprocess.run(
            [*compiler.command, *arguments],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
    except OSError as error:
        raise BuildError("RX0501", f"{compiler.command[0]} cannot be run: {error.strerror}", INSTALL) from error
    if done.returncode == 0:
        return
    said = done.stdout + done.stderr
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_text(f"{shlex.join([*compiler.command, *arguments])}\n\n{said}")
    status = done.returncode
    raise BuildError("RX0503", f"{compiler.version} failed: {first_error(said, status)}", _advice(said, status, log))


def first_error(said: str, status: int) -> str:
    """The first line that a reader of the log would look for."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    marked = [line for line in lines if "error:" in line or "undefined reference" in line or line.startswith("error")]
    return (marked or lines or [f"it ended with status {status} and said nothing"])[0]


def _advice(said: str, status: int, log: Path) -> str:
    if "No space left" in said:
        return f"free some disk space, or set RELAXC_CACHE and TMPDIR to a disk that has some; the log is {log}"
    if status < 0 or "Killed" in said:
        return f"the compiler was stopped, most often by a lack of memory: try again with MAX_JOBS=1; the log is {log}"
    return f"the log is {log}"
