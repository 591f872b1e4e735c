"""Which relaxc this is, to the byte: a cached plan must not outlive the code that made it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from relaxc import __version__, resources
from relaxc.build.cache import key_of

SUFFIXES = {".py", ".j2", ".h", ".relax", ".lark"}


def fingerprint() -> str:
    """Over names, sizes and times of all that takes part in compiling: a checkout changes without its version."""
    folders = [resources.PACKAGE, *(resources.folder(name) for name in resources.FOLDERS)]
    return key_of([__version__, *(part for folder in folders for part in _facts(folder))])


def _facts(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES:
            facts = path.stat()
            yield f"{path} {facts.st_size} {facts.st_mtime_ns}"
