"""Algorithms and codecs by name: in the file, then in the library."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxc.language import library, syntax
from relaxc.language.diagnostics import Label
from relaxc.language.names import Scope, scope
from relaxc.language.places import name_span, parameter_spans
from relaxc.language.report import Report
from relaxc.language.source import Span
from relaxc.language.spec import Names
from relaxc.language.vocabulary import BUILT_IN, BUILT_IN_CODECS, CODEC_WORDS
from relaxc.language.words import clipped, did_you_mean


@dataclass(frozen=True, slots=True)
class Found:
    """An algorithm and what its body may name."""

    definition: syntax.Algorithm
    names: Names


@dataclass(frozen=True, slots=True)
class Definitions:
    """What one file defines. `scope` are its params."""

    scope: Scope
    algorithms: dict[str, syntax.Algorithm]
    codecs: dict[str, syntax.Codec]

    @property
    def names(self) -> Names:
        return Names(self.scope.values, self.codecs)

    def algorithm(self, name: str, place: Span, report: Report) -> Found | None:
        """The algorithm that `relax with name` runs; None where there is none, which is reported."""
        if name in self.algorithms:
            return Found(self.algorithms[name], self.names)
        file = library.spec(name)
        if file is None:
            self._unknown(name, place, report)
            return None
        theirs = definitions(file, scope(file, {}, report), report)
        if name not in theirs.algorithms:
            (statement,) = [item.span.text for item in file.items if isinstance(item, syntax.Relax)][-1:]
            report.error(
                "RX0112", f"`{name}` of the library is no algorithm", place, help=f"write {clipped(statement, 100)}"
            )
            return None
        return Found(theirs.algorithms[name], theirs.names)

    def _unknown(self, name: str, place: Span, report: Report) -> None:
        meant = did_you_mean(name, [*self.algorithms, *library.specs()])
        help_ = meant or f"define it: algorithm {clipped(name)}() {{ ... }}; `relaxc specs` lists the library"
        report.error("RX0112", f"no algorithm `{clipped(name)}`", place, help=help_)


def definitions(file: syntax.File, params: Scope, report: Report) -> Definitions:
    """The definitions of a file; names that can't be are reported."""
    made = Definitions(params, {}, {})
    for item in file.items:
        if isinstance(item, syntax.Algorithm) and _is_new(item, "algorithm", made.algorithms, report):
            made.algorithms[item.name] = item
        elif isinstance(item, syntax.Codec) and _is_new(item, "codec", made.codecs, report):
            _reserved(item, params, report)
            made.codecs[item.name] = item
    return made


def _is_new(
    item: syntax.Algorithm | syntax.Codec,
    word: str,
    known: dict[str, syntax.Algorithm] | dict[str, syntax.Codec],
    report: Report,
) -> bool:
    _parameters(item.parameters, report)
    earlier = known.get(item.name)
    if earlier is not None:
        first = Label(name_span(earlier, word), "first defined here")
        report.error("RX0106", f"the {word} `{item.name}` is defined twice", name_span(item, word), "defined again",
                     "choose another name", [first])  # fmt: skip
    return earlier is None


def _reserved(item: syntax.Codec, params: Scope, report: Report) -> None:
    span = name_span(item, "codec")
    if item.name in (*CODEC_WORDS, *BUILT_IN_CODECS):
        report.error("RX0104", f"`{item.name}` is a word of the language", span, "can't be the name of a codec",
                     "choose another name")  # fmt: skip
    elif item.name in params.places:
        first = Label(params.places[item.name], "a param here")
        report.error("RX0106", f"`{item.name}` is defined twice", span, "defined again", "choose another name", [first])


def _parameters(parameters: Sequence[syntax.Parameter], report: Report) -> None:
    seen: dict[str, Span] = {}
    for parameter, span in zip(parameters, parameter_spans(parameters), strict=True):
        name = parameter.name
        if name in BUILT_IN:
            report.error("RX0104", f"`{name}` is a word of the language", span, "can't be the name of a parameter",
                         "choose another name")  # fmt: skip
        elif name in seen:
            first = Label(seen[name], "first here")
            report.error("RX0106", f"the parameter `{name}` is there twice", span, "again", "delete one", [first])
        seen.setdefault(name, span)
