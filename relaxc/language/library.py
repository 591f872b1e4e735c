"""The library of specs that comes with relaxc: `specs/NAME.relax` algorithms and `specs/codecs/NAME.relax` codecs.

A file is read when somebody asks for it by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from relaxc import resources
from relaxc.language import syntax
from relaxc.language.parse import parse
from relaxc.language.source import Source


def specs() -> tuple[str, ...]:
    """The names of all specs, sorted."""
    return _names(resources.folder("specs"))


@cache
def codecs() -> tuple[str, ...]:
    """The names of all codecs, sorted."""
    return _names(resources.folder("specs") / "codecs")


def spec(name: str) -> syntax.File | None:
    """The file `specs/name.relax`; None where there is none."""
    return _file(f"specs/{name}.relax") if name in specs() else None


@cache
def codec(name: str) -> syntax.Codec | None:
    """The definition of the codec `name` of the library; None where there is none."""
    if name not in codecs():
        return None
    items = _file(f"specs/codecs/{name}.relax").items
    return next(item for item in items if isinstance(item, syntax.Codec) and item.name == name)


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.relax")))


def _file(name: str) -> syntax.File:
    raw = Source.read(resources.folder("specs") / name.removeprefix("specs/"))
    return parse(Source(name, raw.text))
