"""`lowrank(rank)`: a codec that no block program can express, since it takes two exchanges."""

from __future__ import annotations

from relaxc.language import syntax
from relaxc.language.source import Source, Span
from relaxc.language.spec import CodecUse

NAME, RANK = "lowrank", "rank"
LARGEST = 1024
_place = Span(Source("lowrank", "codec lowrank(rank)"), 0, len("codec"))
DEFINITION = syntax.Codec(_place, NAME, (syntax.Parameter(_place, RANK, None),), ())
"""Its name and parameter; program/low_rank.py says what it means."""


def rank_of(use: CodecUse) -> int:
    """0 for any other codec."""
    return int(dict(use.arguments)[RANK]) if use.definition is DEFINITION else 0
