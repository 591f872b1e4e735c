"""Which codec `compress = auto` stands for: the spec with codecs in its place, for a model, a network and a number of
workers.

Every candidate is a text: one codec everywhere, or for gradients the codec of each bucket that the dynamic programme
chooses among all. Each is fitted and its iteration predicted; of those that are about as fast, the one that loses least
is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from relaxc import pipeline
from relaxc.language.automatic_codecs import Choice, rewritten, statements
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.language.syntax import File

if TYPE_CHECKING:
    from relaxc.language.spec import Cluster
    from relaxc.manifest import Manifest
    from relaxc.schedule.fit import Fitted, Line
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.wire.parameters import Parameter

CODECS = ("none", "bf16", "8bit", "4bit")
"""The one that loses least first."""
ALIKE = 0.03
"""Iterations that differ by no more of the fastest are about as fast: less than that is not worth a loss."""


@dataclass(frozen=True)
class Situation:
    """What a codec is chosen by. `cores` are each worker's."""

    profile: Profile
    network: Network
    workers: int
    cores: int = 2


@dataclass(frozen=True)
class Candidate:
    """`name` is the codec, or `mixed`; `seconds` its predicted iteration."""

    name: str
    source: Source
    seconds: float


@dataclass(frozen=True)
class Chosen:
    """`candidates` are all that were compared, the one that loses least first."""

    best: Candidate
    candidates: tuple[Candidate, ...]


def is_open(source: Source) -> bool:
    """Whether a spec leaves codecs to be chosen. A text with mistakes does not: they are reported elsewhere."""
    try:
        return "auto" in source.text and bool(statements(parse(source)))
    except SpecError:
        return False


def cluster_of(source: Source, settings: Mapping[str, str]) -> Cluster | None:
    """That of a spec which leaves codecs open. Raise SpecError."""
    file = parse(source)
    text = rewritten(file, {number: {CODECS[0]: ()} for number, _ in statements(file)})
    return pipeline.to_spec(text, settings).cluster


def resolved(
    source: Source, settings: Mapping[str, str], name: str, profile: Profile,
    among: Callable[[Cluster | None], tuple[Network, int] | None], tell: Callable[[str], None],
) -> Source:  # fmt: skip
    """The spec with a codec for each `compress = auto`, as it is where there is none or nothing to choose by. `among`
    gives network and workers, told the spec's own cluster; `tell` is told what was compared. Raise what `choose`
    raises."""
    situation = among(cluster_of(source, settings)) if is_open(source) else None
    if situation is None:
        return source
    made = choose(source, settings, name, Situation(profile, *situation))
    for line in story(made):
        tell(line)
    return made.best.source


def story(chosen: Chosen) -> list[str]:
    """What was compared, a line each."""
    from relaxc.units import shown_time

    every = ", ".join(f"{each.name} {shown_time(each.seconds)}" for each in chosen.candidates)
    fastest = min(each.seconds for each in chosen.candidates)
    why = "" if chosen.best.seconds == fastest else f", which loses least of those within {ALIKE:.0%} of the fastest"
    return [f"compress = auto: {chosen.best.name}{why}; predicted iterations: {every}"]


def choose(source: Source, settings: Mapping[str, str], name: str, situation: Situation) -> Chosen:
    """Raise SpecError where no codec makes sense for some statement, ModelError (RX0401) where none governs a
    parameter."""
    file = parse(source)
    manifests, refused = _uniform(file, settings, name)
    if not manifests:
        raise refused[-1]
    found = [_candidate(codec, *each, situation) for codec, each in manifests.items()]
    mixed = _mixed(file, {codec: manifest for codec, (_, manifest) in manifests.items()}, situation)
    if mixed is not None:
        text, codecs = mixed
        place = max(n for n, codec in enumerate(manifests) if codec in codecs)
        found.insert(place, _candidate("mixed", text, pipeline.manifest_of(text, settings, name), situation))
    fastest = min(candidate.seconds for candidate in found)
    best = next(candidate for candidate in found if candidate.seconds <= fastest * (1 + ALIKE))
    return Chosen(best, tuple(found))


def _uniform(
    file: File, settings: Mapping[str, str], name: str
) -> tuple[dict[str, tuple[Source, Manifest]], list[SpecError]]:
    """By codec, the text with it everywhere, where that makes sense."""
    made, refused = {}, []
    for codec in CODECS:
        text = rewritten(file, {number: {codec: ()} for number, _ in statements(file)})
        try:
            made[codec] = text, pipeline.manifest_of(text, settings, name)
        except SpecError as error:
            refused.append(error)
    return made, refused


def _candidate(name: str, source: Source, manifest: Manifest, situation: Situation) -> Candidate:
    from relaxc.schedule.fit import fit, with_fit
    from relaxc.schedule.predict import predict

    profile, network, workers = situation.profile, situation.network, situation.workers
    fitted = with_fit(manifest, fit(manifest, profile, network, workers))
    return Candidate(name, source, predict(fitted, profile, network, workers, cores=situation.cores).iteration)


# --- a codec for each bucket


def _mixed(file: File, manifests: Mapping[str, Manifest], situation: Situation) -> tuple[Source, set[str]] | None:
    """The text, and which codecs are in it. None where all buckets come to one, or what is exchanged is no gradient."""
    open_ = [number for number, _ in statements(file)]
    if any(manifest.bodies[number].gradient is None for manifest in manifests.values() for number in open_):
        return None
    from relaxc.schedule.fit import fitted_lines

    fitted = fitted_lines(_lines(manifests, open_, situation), next(iter(manifests.values())))
    choices = {number: _choice(fitted, number, list(manifests)) for number in open_}
    codecs = {codec for choice in choices.values() for codec in choice}
    if len(codecs) == 1:
        return None
    every = [p.name for p in situation.profile.parameters]
    return rewritten(file, choices, every), codecs


def _lines(manifests: Mapping[str, Manifest], open_: Sequence[int], situation: Situation) -> list[Line]:
    """Those of gradients, with an option for each codec where it is open."""
    from relaxc.schedule.fit import gradient_lines, parameters_of
    from relaxc.schedule.schedule import govern

    by_codec = []
    for manifest in manifests.values():
        parameters: tuple[Parameter, ...] = parameters_of(manifest, situation.profile)
        bodies = govern(manifest, parameters)
        by_codec.append(
            gradient_lines(manifest, parameters, bodies, situation.profile, situation.network, situation.workers)
        )
    return [
        replace(same[0], options=tuple(line.options[0] for line in same)) if same[0].body in open_ else same[0]
        for same in zip(*by_codec, strict=True)
    ]


def _choice(fitted: Sequence[Fitted], body: int, codecs: Sequence[str]) -> Choice:
    """The codec with most parameters last: it needs no names."""
    found: dict[str, list[str]] = {}
    for of in fitted:
        for _, members, option in of.buckets() if of.line.body == body else ():
            found.setdefault(codecs[option], []).extend(p.name for p in members)
    return dict(sorted(found.items(), key=lambda each: len(each[1]))) or {codecs[0]: ()}
