"""The library of specs that comes with relaxc: `specs/NAME.relax` algorithms, `specs/codecs/NAME.relax` codecs, and in
`specs/knobs/` the algorithms that statements such as `relax weights` stand for.

A file is read when somebody asks for it by name.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from relaxc import resources
from relaxc.language import syntax
from relaxc.language.parse import parse
from relaxc.language.source import Source


@cache
def specs() -> tuple[str, ...]:
    """The names of all specs, sorted."""
    return _names(resources.folder("specs"))


@cache
def codecs() -> tuple[str, ...]:
    """The names of all codecs, sorted."""
    return _names(resources.folder("specs") / "codecs")


@cache
def spec(name: str) -> syntax.File | None:
    """The file `specs/name.relax`; None where there is none."""
    return _file(f"specs/{name}.relax") if name in specs() else None


def is_algorithm(name: str) -> bool:
    """Whether `relax with name` finds an algorithm in the library."""
    file = spec(name)
    return file is not None and any(isinstance(i, syntax.Algorithm) and i.name == name for i in file.items)


@cache
def codec(name: str) -> syntax.Codec | None:
    """The definition of the codec `name` of the library; None where there is none."""
    if name not in codecs():
        return None
    items = _file(f"specs/codecs/{name}.relax").items
    return next(item for item in items if isinstance(item, syntax.Codec) and item.name == name)


@cache
def knobs(name: str) -> syntax.File:
    """The file `specs/knobs/name.relax`, one that comes with relaxc."""
    return _file(f"specs/knobs/{name}.relax")


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.relax")))


def _file(name: str) -> syntax.File:
    path = resources.folder("specs") / name.removeprefix("specs/")
    return parse(Source(name, Source.read(path).text))
