"""Where the lines go that a build says while it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

Report = Callable[[str], None]
"""Takes one line of progress, without a line end."""


def on_stderr(line: str) -> None:
    """One line, said by local rank 0 only: under torchrun every worker asks for the same build."""
    if os.environ.get("LOCAL_RANK", "0") == "0":
        sys.stderr.write(f"relaxc: {line}\n")
        sys.stderr.flush()
