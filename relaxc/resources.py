"""The files that are no Python and that the package needs: grammar, codegen, runtime, specs.

An installed package carries them in `relaxc/_share/`; a checkout has them beside the package.
"""

from __future__ import annotations

import os
from pathlib import Path

from relaxc.usage import UsageError

PACKAGE = Path(__file__).resolve().parent
FOLDERS = ("grammar", "codegen", "runtime", "specs")


class MissingResource(UsageError):
    """The installation is damaged: a folder that comes with relaxc is not there."""


def folder(name: str) -> Path:
    """The folder `name`, one of FOLDERS.

    Raises MissingResource where it is neither in `_share` nor beside the package.
    """
    candidates = (PACKAGE / "_share" / name, PACKAGE.parent / name)
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    looked = " nor in ".join(str(c.parent) for c in candidates)
    raise MissingResource(f"relaxc's own folder {name!r} is neither in {looked}: install relaxc again")


def spec_path(name: str) -> Path:
    """Of a spec that a user names: a file; else one of the library, which goes by its bare name."""
    path = Path(name)
    shipped = folder("specs") / f"{name}.relax"
    return shipped if path.name == name and not path.exists() and shipped.is_file() else path


def cache_folder() -> Path:
    """Where relaxc keeps what it can make again: $RELAXC_CACHE, or the user's cache. It may be absent or read-only."""
    if chosen := os.environ.get("RELAXC_CACHE"):
        return Path(chosen)
    from platformdirs import user_cache_path  # 5 ms that an explicit folder saves

    return user_cache_path("relaxc", appauthor=False)
