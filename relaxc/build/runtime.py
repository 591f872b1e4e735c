"""The runtime: runtime/*.cpp compiled against the installed torch, once per torch, and loaded as a module."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

from relaxc import resources
from relaxc.build import cache
from relaxc.build.compiler import Compiler, compile_file, find
from relaxc.build.report import Report, on_stderr
from relaxc.build.torch_flags import MODULE, TorchFlags, import_torch, python_include, torch_flags
from relaxc.errors import BuildError

KIND = "runtime"
OBJECTS = "objects"
LIBRARY = f"{MODULE}.so"
FLAGS = ("-O2", "-fPIC", "-pthread")
"""No -march: the arithmetic is in torch and in the kernels, and a plan may carry this library to another machine."""
OPENMP = "-fopenmp"
"""For at::parallel_for in torch's headers, with g++, which brings OpenMP. The library is not linked with it: what it
calls is found in the one that torch has loaded, whose threads are those of torch.set_num_threads. Without it kernels
run on one thread."""
SECONDS_A_FILE = 15
"""On an ordinary core, most of it torch's headers; what is said before a build is an estimate from it."""


def build_runtime(report: Report | None = None) -> Path:
    """The runtime's library for this torch, from the cache or built into it (SECONDS_A_FILE on each core).

    Raises BuildError: RX0501 no compiler, RX0502 no torch, RX0503 it does not compile, RX0504 and RX0505 the cache,
    RX0506 no Python headers.
    """
    report = report or on_stderr
    torch, sources = torch_flags(), Sources.read()
    if found := built_runtime(torch, sources):
        return found
    recipe = _Recipe(find(), torch, sources, python_include(), report)
    entry = cache.obtain(KIND, recipe.key, recipe.make, what=f"the runtime for torch {torch.version}", report=report)
    return entry / LIBRARY


def built_runtime(torch: TorchFlags | None = None, sources: Sources | None = None) -> Path | None:
    """The runtime for this torch if a cache has it, whichever compiler built it: needs no compiler."""
    entry = cache.lookup_any(KIND, runtime_identity(torch, sources))
    return entry / LIBRARY if entry else None


def runtime_identity(torch: TorchFlags | None = None, sources: Sources | None = None) -> str:
    """Names the binaries that fit here: this relaxc's sources and this torch, Python and architecture."""
    return cache.key_of([(torch or torch_flags()).binary, (sources or Sources.read()).digest])


def carried_name(identity: str) -> str:
    """The name under which a plan directory carries a runtime, for hosts without a compiler."""
    return f"{MODULE}-{identity}.so"


def carried_runtime(folder: Path) -> Path | None:
    """The runtime in a plan directory that fits this torch, if it carries one."""
    path = folder / carried_name(runtime_identity())
    return path if path.is_file() else None


def load_runtime(path: Path | None = None, report: Report | None = None) -> ModuleType:
    """The module, built first where needed; one per process, so `path` counts at the first call only.

    Raises BuildError as `build_runtime`, and RX0507 where the library does not load.
    """
    if loaded := sys.modules.get(MODULE):
        return loaded
    import_torch()  # its libraries must be in the process before the module's are resolved
    return _load(path or build_runtime(report))


def _load(path: Path) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(path))
    spec = importlib.util.spec_from_file_location(MODULE, path, loader=loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        message = f"the runtime {path} does not load: {error}"
        raise BuildError("RX0507", message, f"delete the folder {path.parent}, then try again") from error
    sys.modules[MODULE] = module
    return module


class Sources:
    """The runtime's sources: `files` are compiled, `digest` covers them and every header that they include. Of relaxrt/
    those are the ABIs; the rest is for generated kernels, and changes without a build of the runtime."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files = sorted(folder.glob("*.cpp"))
        self.digest = self._digest_of(self.files)

    def digest_of(self, file: Path) -> str:
        """Of one of the files and what it includes."""
        return self._digest_of([file])

    def _digest_of(self, files: Sequence[Path]) -> str:
        read = [*files, *sorted(_included(files))]
        return cache.key_of(part for f in read for part in (f.relative_to(self.folder).as_posix(), f.read_bytes()))

    @classmethod
    def read(cls) -> Sources:
        return cls(resources.folder("runtime"))


_INCLUDE = re.compile(rb'^#include "([^"]+)"', re.MULTILINE)


def _included(files: Sequence[Path]) -> set[Path]:
    """All headers of ours that these files include, and those do in turn."""
    found: set[Path] = set()
    waiting = list(files)
    while waiting:
        file = waiting.pop()
        near = {file.parent / name.decode() for name in _INCLUDE.findall(file.read_bytes())}
        new = {path for path in near if path.is_file()} - found
        found |= new
        waiting += new
    return found


class _Recipe:
    """One build of the runtime: objects first, each with an entry of its own, so a killed build is taken up again."""

    def __init__(self, compiler: Compiler, torch: TorchFlags, sources: Sources, python: str, report: Report) -> None:
        self.compiler, self.torch, self.sources, self.report = compiler, torch, sources, report
        self.flags = [*torch.defines, *FLAGS, *threading(compiler)]
        self.includes = [f"-I{sources.folder}", *torch.includes, python]
        self.settings = cache.key_of([torch.binary, compiler.version, *self.flags])
        self.key = f"{runtime_identity(torch, sources)}-{self.settings[:8]}"

    def make(self, folder: Path) -> None:
        workers = jobs(len(self.sources.files))
        self.report(f"building the runtime for torch {self.torch.version}, once; takes about {self.duration(workers)}")
        with ThreadPoolExecutor(workers) as pool:
            try:
                objects = list(pool.map(self.compile, self.sources.files))
            except BaseException:
                pool.shutdown(cancel_futures=True)  # the rest would fail alike, half a minute each
                raise
        arguments = ["-shared", "-pthread", *map(str, objects), *self.torch.link, "-o", LIBRARY]
        compile_file(self.compiler, arguments, folder, cache.log_path(folder, self.key))

    def duration(self, workers: int) -> str:
        rounds = -(-len(self.sources.files) // workers)
        minutes = round(rounds * SECONDS_A_FILE / 60)
        return f"{minutes} minutes" if minutes > 1 else "a minute"

    def compile(self, source: Path) -> Path:
        key = cache.key_of([self.sources.digest_of(source), self.settings])

        def make(folder: Path) -> None:
            arguments = [*self.flags, *self.includes, "-c", str(source), "-o", "object.o"]
            compile_file(self.compiler, arguments, folder, cache.log_path(folder, key))

        return cache.obtain(OBJECTS, key, make, what=source.name, report=_silent) / "object.o"


def _silent(line: str) -> None:
    """The objects belong to a build that has said what there is to say."""


def threading(compiler: Compiler) -> list[str]:
    return [OPENMP] if compiler.version.startswith("gcc") else []


def jobs(files: int) -> int:
    """Compilers at once: a core each, at most MAX_JOBS (the variable that torch's own extensions obey)."""
    cores = len(os.sched_getaffinity(0))
    limit = os.environ.get("MAX_JOBS", "")
    return max(1, min(files, cores, int(limit) if limit.isdigit() else cores))
