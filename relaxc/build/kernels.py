"""Generated kernels: one C++ source -> one shared library, in the cache."""

from __future__ import annotations

from pathlib import Path

from relaxc import resources
from relaxc.build import cache, flags
from relaxc.build.compiler import Compiler, compile_file, find
from relaxc.build.report import Report, on_stderr

KIND = "kernels"
SOURCE = "kernels.cpp"
LIBRARY = "kernels.so"


def build_kernels(source: str, report: Report | None = None) -> Path:
    """Compile `source`, which includes relaxrt/ only, for this machine's processor. Under a second; cached, a few ms.

    Returns the path of the library in the cache. Raises BuildError: RX0501 no compiler, RX0503 it does not compile,
    RX0504 and RX0505 the cache.
    """
    report = report or on_stderr
    compiler, runtime = find(), resources.folder("runtime")
    key = cache.key_of([source, *headers(runtime), *flags.KERNEL_FLAGS, compiler.version, str(compiler.cpu)])

    def make(folder: Path) -> None:
        _compile(compiler, source, folder, runtime, cache.log_path(folder, key))

    return cache.obtain(KIND, key, make, what="these kernels", report=report) / LIBRARY


def headers(runtime: Path) -> list[bytes]:
    """Names and contents of all that a generated source may include."""
    paths = sorted((runtime / "relaxrt").glob("*.h"))
    return [part for path in paths for part in (path.name.encode(), path.read_bytes())]


def _compile(compiler: Compiler, source: str, folder: Path, runtime: Path, log: Path) -> None:
    (folder / SOURCE).write_text(source)
    compile_file(compiler, [*flags.KERNEL_FLAGS, f"-I{runtime}", SOURCE, "-o", LIBRARY], folder, log)
