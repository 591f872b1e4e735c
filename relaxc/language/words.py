"""Words for messages: lists in English, and what somebody may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def listed(words: Sequence[str], last: str = "or") -> str:
    """`a`, `a or b`, `a, b or c`"""
    return f" {last} ".join(part for part in (", ".join(words[:-1]), "".join(words[-1:])) if part)


def did_you_mean(word: str, known: Iterable[str], alike: float = 0.6) -> str | None:
    """`did you mean ...?` where a known word is close to `word`."""
    from difflib import get_close_matches  # only a wrong spec pays for it

    close = get_close_matches(word.lower(), sorted(known), n=1, cutoff=alike)
    return f"did you mean `{close[0]}`?" if close else None


def clipped(text: str, width: int = 40) -> str:
    """`text` on one line, at most `width` characters long."""
    text = " ".join(text.split())
    return text if len(text) <= width else text[: width - 3] + "..."
