"""Where in the text the names of definitions stand."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxc.language import syntax
from relaxc.language.source import Span

Named = syntax.Algorithm | syntax.Codec | syntax.State | syntax.Let | syntax.Send | syntax.Phase | syntax.Param


def name_span(node: Named, keyword: str) -> Span:
    """Where the name of a definition stands, behind its keyword."""
    source = node.span.source
    start = source.text.index(node.name, node.span.start + len(keyword))
    return Span(source, start, start + len(node.name))


def parameter_spans(parameters: Sequence[syntax.Parameter]) -> Iterator[Span]:
    """Where the names of parameters stand."""
    for p in parameters:
        yield Span(p.span.source, p.span.start, p.span.start + len(p.name))
