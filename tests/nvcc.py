"""Where nvcc is: on the PATH, or in NVIDIA's package, which development installs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path


def found() -> str | None:
    """Its path."""
    of_packages = (path for folder in sys.path for path in sorted(Path(folder or ".").glob("nvidia/*/bin/nvcc")))
    return shutil.which("nvcc") or next(map(str, of_packages), None)
