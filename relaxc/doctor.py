"""What this machine has of what relaxc needs. Works with no torch, no compiler and no home."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import relaxc
from relaxc.build import cache, cpu
from relaxc.build.compiler import INSTALL, find
from relaxc.errors import BuildError
from relaxc.resources import FOLDERS, MissingResource, folder

TORCH_SECONDS = 120
"""How long the first import of torch may take on a cold disk."""


class State(StrEnum):
    OK = "ok"
    WARN = "warn"
    """Something works without it, or less well."""
    MISSING = "missing"
    """Plans cannot be compiled or attached without it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`detail` says what there is, `help` what to do about it where something is to be done."""

    name: str
    state: State
    detail: str
    help: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which a user would put things right. Takes as long as importing torch."""
    torch = _ask_torch()
    return [
        _python(),
        _relaxc(),
        _compiler(),
        _cpu(),
        _headers(),
        *_torch(torch),
        *_caches(),
        *_runtime(torch),
        _package("lark", "pip install lark"),
        _package("jinja2", "pip install jinja2"),
        _shaping(),
    ]


def _python() -> Finding:
    return Finding("python", State.OK, f"{platform.python_version()} ({sys.executable})")


def _relaxc() -> Finding:
    try:
        for name in FOLDERS:
            folder(name)
    except MissingResource as error:
        return Finding("relaxc", State.MISSING, str(error), "pip install --force-reinstall --no-deps relaxc")
    return Finding("relaxc", State.OK, f"{relaxc.__version__} ({Path(relaxc.__file__).parent})")


def _compiler() -> Finding:
    try:
        compiler = find()
    except BuildError as error:
        return Finding("C++ compiler", State.MISSING, error.message, error.help or INSTALL)
    return Finding("C++ compiler", State.OK, f"{compiler.version} ({' '.join(compiler.command)})")


def _cpu() -> Finding:
    here = cpu.available()
    wide = [flag for flag in ("avx2", "avx512f", "sve", "asimd") if flag in here.flags]
    detail = f"{here.architecture}, {os.cpu_count()} cores, {' '.join(wide) or 'no wide vectors'}"
    if here.flags:
        return Finding("processor", State.OK, detail)
    help = "plans that were compiled on other machines are refused here"
    return Finding("processor", State.WARN, f"{detail}; its flags are unknown", help)


def _headers() -> Finding:
    path = Path(sysconfig.get_path("include")) / "Python.h"
    if path.is_file():
        return Finding("Python.h", State.OK, str(path))
    return Finding("Python.h", State.MISSING, f"not in {path.parent}", "apt-get install python3-dev (Debian)")


# --- torch


def _ask_torch() -> Mapping[str, Any] | str:
    """The answer of build/torch_report.py, or one line that says why there is none."""
    root = str(Path(relaxc.__file__).parent.parent)
    paths = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH", "")]))
    try:
        done = subprocess.run(
            [sys.executable, "-m", "relaxc.build.torch_report"],
            capture_output=True,
            text=True,
            timeout=TORCH_SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": paths},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"asking torch failed: {error}"
    if done.returncode == 0:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    said = [line for line in done.stderr.splitlines() if "BuildError: " in line] or done.stderr.splitlines()[-1:]
    return said[-1].split("BuildError: ")[-1] if said else f"python ended with status {done.returncode}"


def _torch(torch: Mapping[str, Any] | str) -> Iterator[Finding]:
    if isinstance(torch, str):
        yield Finding("torch", State.MISSING, torch, "pip install torch")
        return
    yield Finding("torch", State.OK, str(torch["version"]))
    if torch["gloo"]:
        backends = "gloo, nccl" if torch["nccl"] else "gloo"
        yield Finding("torch.distributed", State.OK, backends)
    else:
        help = "install a torch that was built with distributed and gloo"
        yield Finding("torch.distributed", State.MISSING, "no gloo in this torch", help)
    if torch["gpu"]:
        yield Finding("GPU", State.WARN, torch["gpu"], "relaxc's kernels for GPUs have not been run on a card yet")


def _runtime(torch: Mapping[str, Any] | str) -> Iterator[Finding]:
    if isinstance(torch, str):
        return
    if torch["runtime"]:
        yield Finding("runtime", State.OK, str(torch["runtime"]))
    else:
        detail = f"not built for torch {torch['version']} yet"
        yield Finding("runtime", State.WARN, detail, "nothing: the first attach builds it, which takes a minute or two")


# --- the rest


def _caches() -> Iterator[Finding]:
    said: list[str] = []
    try:
        root = cache.writable_root(said.append)
    except BuildError as error:
        yield Finding("cache", State.MISSING, error.message, error.help or cache.CHOOSE)
        return
    detail = f"{root}, {_megabytes(root):.1f} MB, may be deleted at any time"
    yield Finding("cache", State.WARN, said[0], cache.CHOOSE) if said else Finding("cache", State.OK, detail)


def _megabytes(root: Path) -> float:
    return sum(path.lstat().st_size for path in root.rglob("*") if path.is_file()) / 1e6


def _package(name: str, help: str) -> Finding:
    if importlib.util.find_spec(name):
        return Finding(name, State.OK, importlib.metadata.version(name))
    return Finding(name, State.WARN, "not installed: a built plan loads, but specs cannot be compiled", help)


def _shaping() -> Finding:
    """What the demo shapes its links with."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
    absent = [tool for tool in ("ip", "tc", "unshare") if not shutil.which(tool, path=path)]
    if absent:
        detail = f"no {', '.join(absent)}: the demo's links are not shaped"
        return Finding("demo network", State.WARN, detail, "apt-get install iproute2 util-linux (Debian)")
    if os.getuid() != 0 and not _may_unshare():
        detail = "no user namespaces: the demo's links are not shaped"
        return Finding("demo network", State.WARN, detail, "run the demo as root")
    return Finding("demo network", State.OK, "ip, tc, unshare")


def _may_unshare() -> bool:
    try:
        return subprocess.run(["unshare", "-Urn", "true"], capture_output=True, timeout=10, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
