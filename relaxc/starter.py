"""The library as a place to start from: what each spec is, in a line, and a copy of one under another name."""

from __future__ import annotations

import re

from relaxc import resources
from relaxc.errors import RelaxError
from relaxc.language import library

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def summary(text: str) -> str:
    """The first sentence of the comment that opens a spec."""
    words: list[str] = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words += line.removeprefix("#").split()
    sentence, _, _ = re.sub(r" \([^()]*\)", "", " ".join(words)).partition(". ")
    return sentence.rstrip(".")


def described() -> list[tuple[str, str]]:
    """(name, summary) of each spec of the library, by name."""
    return [(name, summary(text_of(name))) for name in library.specs()]


def text_of(name: str) -> str:
    return (resources.folder("specs") / f"{name}.relax").read_text(encoding="utf-8")


def copy_of(origin: str, name: str) -> str:
    """The text of the spec `origin`, its algorithm called `name`. Raise RelaxError (RX0112) where there is no such
    spec, or `name` is no name."""
    from relaxc.language.words import did_you_mean

    if origin not in library.specs():
        advice = did_you_mean(origin, library.specs()) or "`relaxc specs` lists them"
        raise RelaxError("RX0112", f"no spec `{origin}` in the library", advice)
    if not NAME.fullmatch(name):
        raise RelaxError("RX0112", f"`{name}` is not a name", "use letters, digits and _, and no digit first")
    text = text_of(origin)
    return re.sub(rf"(?m)^(algorithm|relax with) {re.escape(origin)}\b", rf"\1 {name}", text)
