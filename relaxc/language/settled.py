"""A spec with what `--set` gave in place of its params' own values: the text that alone means what was compiled."""

from __future__ import annotations

from collections.abc import Mapping

from relaxc.language import syntax
from relaxc.language.parse import parse
from relaxc.language.source import Source


def settled(source: Source, settings: Mapping[str, str]) -> str:
    """Raise SpecError for a text that is none."""
    text, made, position = source.text, [], 0
    for item in parse(source).items if settings else ():
        if isinstance(item, syntax.Param) and item.name in settings:
            made += [text[position : item.value.span.start], settings[item.name].strip()]
            position = item.value.span.end
    return "".join(made) + text[position:]
