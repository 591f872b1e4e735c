"""The user's own code: found by its name on the command line, and blamed by its own line."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

NAMED = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")
"""package.module:name, of something that a module holds."""


def found(option: str) -> Any:
    """What `package.module:name` names. Raise whatever the user's module raises, ImportError and AttributeError."""
    module_name, _, name = option.partition(":")
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # as `python -m` does: the user's module is beside the spec
    thing = importlib.import_module(module_name)
    for part in name.split("."):
        thing = getattr(thing, part)
    return thing


def described(error: BaseException) -> str:
    """The kind of an exception, the first sentence of what it says, and the user's own line."""
    said = next(iter(str(error).strip().splitlines()), "").split(". ")[0].strip().rstrip(".")
    kind = type(error).__name__
    return (f"{kind}: {shorten(said, 200, placeholder=' ...')}" if said else kind) + located(error)


def located(error: BaseException) -> str:
    """The user's own line as ` (file:line)`: the innermost one outside torch, relaxc and Python's own library, of the
    exception or of what led to it. Empty where there is none."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    for cause in _causes(error):
        for frame in reversed(traceback.extract_tb(cause.__traceback__)):
            if _is_users(frame.filename):
                return f" ({frame.filename}:{frame.lineno})"
    return ""


def _causes(error: BaseException) -> Iterator[BaseException]:
    known: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in known:
        known.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__


def _is_users(file: str) -> bool:
    if file.startswith("<"):
        return False  # made by torch.fx, or frozen
    path = Path(file)
    if any(path.is_relative_to(folder) for folder in _packages()):
        return False
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    return bool(installed) or not path.is_relative_to(sysconfig.get_path("stdlib"))


def _packages() -> Iterator[Path]:
    """Folders whose lines are not the user's."""
    yield Path(__file__).parent
    torch = importlib.util.find_spec("torch")
    if torch is not None and torch.origin is not None:
        yield Path(torch.origin).parent
