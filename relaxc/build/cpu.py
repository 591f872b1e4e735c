"""What instructions a library may use and what this machine has, in one vocabulary: the flag names of /proc/cpuinfo.

Only instructions that a compiler emits for ordinary loops count. A hypervisor that hides `pku` must not refuse a plan.
"""

from __future__ import annotations

import hashlib
import platform
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")

_X86_NAMES = {
    "SSE3": "pni",
    "SSSE3": "ssse3",
    "SSE4_1": "sse4_1",
    "SSE4_2": "sse4_2",
    "SSE4A": "sse4a",
    "POPCNT": "popcnt",
    "LZCNT": "abm",
    "MOVBE": "movbe",
    "ADX": "adx",
    "BMI": "bmi1",
    "BMI2": "bmi2",
    "FMA": "fma",
    "FMA4": "fma4",
    "XOP": "xop",
    "F16C": "f16c",
    "GFNI": "gfni",
    "AVX": "avx",
    "AVX2": "avx2",
    "AVXVNNI": "avx_vnni",
    "AVX512BF16": "avx512_bf16",
    "AVX512BITALG": "avx512_bitalg",
    "AVX512FP16": "avx512_fp16",
    "AVX512VBMI2": "avx512_vbmi2",
    "AVX512VNNI": "avx512_vnni",
    "AVX512VP2INTERSECT": "avx512_vp2intersect",
    "AVX512VPOPCNTDQ": "avx512_vpopcntdq",
}
"""Predefined macro of the compiler -> flag of /proc/cpuinfo, where lower case alone does not give it."""


@dataclass(frozen=True, slots=True)
class Cpu:
    """An architecture and the instruction sets beyond its baseline; `str` is what manifests and cache keys hold."""

    architecture: str
    flags: frozenset[str]

    def __str__(self) -> str:
        return " ".join([self.architecture, *sorted(self.flags)])

    @property
    def hash(self) -> str:
        return hashlib.sha256(str(self).encode()).hexdigest()[:8]


def parse(text: str) -> Cpu:
    """The inverse of `str(cpu)`."""
    architecture, *flags = text.split() or [""]
    return Cpu(architecture, frozenset(flags))


def from_macros(macros: frozenset[str], architecture: str) -> Cpu:
    """The CPU that a compiler resolved `-march=native` to, from the macros that it then predefines."""
    if architecture != "x86_64":
        return Cpu(architecture, available().flags)
    names = {m.strip("_") for m in macros}
    # An AVX that is newer than the table keeps its macro's name: unknown on other machines, so refused there.
    used = [n for n in names if n in _X86_NAMES or n.startswith("AVX")]
    return Cpu(architecture, frozenset(_X86_NAMES.get(n, n.lower()) for n in used))


@cache
def available() -> Cpu:
    """What this machine has, without a compiler. No flags where the system has no /proc/cpuinfo."""
    return Cpu(platform.machine(), cpuinfo_flags(CPUINFO))


def cpuinfo_flags(path: Path) -> frozenset[str]:
    """The flags that every core has: a thread may run on any of them."""
    try:
        text = path.read_text(errors="replace")
    except OSError:
        return frozenset()
    cores = [frozenset(line.split()) for line in re.findall(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)]
    return frozenset.intersection(*cores) if cores else frozenset()


def lacking(needed: Cpu, here: Cpu) -> tuple[str, ...]:
    """What `needed` names and `here` has not; the architecture first, alone, where that differs."""
    if needed.architecture != here.architecture:
        return (needed.architecture,)
    return tuple(sorted(needed.flags - here.flags))
