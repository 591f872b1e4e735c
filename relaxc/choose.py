"""What stands for what a spec leaves open, for a model, a network and a number of workers: a codec for each
`compress = auto`, and a route where none is written.

Every candidate is a text: one way everywhere, or for gradients the way of each bucket that the dynamic programme
chooses among all codecs and routes. Each is fitted and its iteration predicted. A route is another than the codec's own
only where the iteration is shorter by a few per cent, and never one that rounds more often; of codecs that are then
about as fast, the one that loses least is taken.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from relaxc.choices import Choices, Situation, Texts
from relaxc.language.automatic import CODECS, Choice, Open, Way, filled, statements
from relaxc.language.check import check
from relaxc.language.diagnostics import SpecError
from relaxc.language.parse import parse
from relaxc.language.source import Source

if TYPE_CHECKING:
    from relaxc.language.spec import Cluster
    from relaxc.language.syntax import File
    from relaxc.schedule.fit import Line
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile

ALIKE = 0.01
"""Iterations that differ by no more of the fastest are about as fast: less is worth no loss."""
GAIN = 0.03
"""Of the iteration: less is worth no other route."""


@dataclass(frozen=True)
class Candidate:
    """`name` is the codec, or `mixed`; `seconds` its predicted iteration. `routes` has how many parameters go by each
    route that is not the codec's own, and `plain` the iteration without those."""

    name: str
    source: Source
    seconds: float
    routes: tuple[tuple[str, int], ...] = ()
    plain: float = 0.0


@dataclass(frozen=True)
class Chosen:
    """`candidates` are all that were compared, the one that loses least first."""

    best: Candidate
    candidates: tuple[Candidate, ...]


def is_open(source: Source) -> bool:
    """Whether a spec leaves anything to be chosen. A text with mistakes does not: they are reported elsewhere."""
    return bool(_open(source))


def leaves_codec(source: Source) -> bool:
    """Whether that is a codec."""
    return any(each.codec for each in _open(source).values())


def _open(source: Source) -> dict[int, Open]:
    try:
        return statements(parse(source))
    except SpecError:
        return {}


def cluster_of(source: Source, settings: Mapping[str, str]) -> Cluster | None:
    """That of a spec which leaves something open. Raise SpecError."""
    return check(filled(parse(source), CODECS[0]), settings).cluster


def resolved(
    source: Source, settings: Mapping[str, str], name: str, profile: Profile,
    among: Callable[[Cluster | None], tuple[Network, int] | None], tell: Callable[[str], None],
    cores: int | None = None,
) -> Source:  # fmt: skip
    """The spec with something for all that it leaves open, as it is where that is nothing or there is nothing to choose
    by. `among` gives network and workers, told the spec's own cluster; `tell` is told what was compared. `cores` are
    each worker's (default: `cores_of` the network). Raise what `choose` raises."""
    situation = among(cluster_of(source, settings)) if is_open(source) else None
    if situation is None:
        return source
    network, workers = situation
    made = choose(source, settings, name, Situation(profile, network, workers, cores_of(network, cores)))
    for line in story(made):
        tell(line)
    return made.best.source


def cores_of(network: Network, given: int | None = None) -> int:
    """Of each worker: `given`, or its share of those that this process may use, were its machine like this one."""
    return given or max(1, len(os.sched_getaffinity(0)) // network.per_machine)


def story(chosen: Chosen) -> list[str]:
    """What was compared, a line each."""
    from relaxc.units import shown_time

    best, lines = chosen.best, []
    if len(chosen.candidates) > 1:
        every = ", ".join(f"{each.name} {shown_time(each.seconds)}" for each in chosen.candidates)
        fastest = min(each.seconds for each in chosen.candidates)
        why = "" if best.seconds == fastest else f", which loses least of those within {ALIKE:.0%} of the fastest"
        lines.append(f"compress = auto: {best.name}{why}; predicted iterations: {every}")
    if best.routes:
        routes = ", ".join(f"{route} for {count} parameter{'s' if count > 1 else ''}" for route, count in best.routes)
        times = f"{shown_time(best.seconds)}, {shown_time(best.plain)} by the codec's own"
        lines.append(f"route = auto: {routes}; predicted iteration: {times}")
    return lines


def choose(source: Source, settings: Mapping[str, str], name: str, situation: Situation) -> Chosen:
    """Raise SpecError where no codec makes sense for some statement, ModelError (RX0401) where none governs a
    parameter."""
    return _Choosing(parse(source), settings, name, situation).run()


class _Choosing:
    def __init__(self, file: File, settings: Mapping[str, str], name: str, situation: Situation) -> None:
        self._open, self._situation = statements(file), situation
        self._texts = Texts(file, settings, name, situation)

    def run(self) -> Chosen:
        uniform = self._uniform()
        ways = {number: list(dict.fromkeys(self._ways(number, uniform))) for number in self._open}
        found = [self._routed(codec, choices, ways) for codec, choices in uniform.items()]
        mixed = self._mixed(ways, list(uniform))
        if mixed is not None:
            loss, candidate = mixed
            found.insert(sum(CODECS.index(codec) <= loss for codec in uniform if codec is not None), candidate)
        fastest = min(candidate.seconds for candidate in found)
        best = next(candidate for candidate in found if candidate.seconds <= fastest * (1 + ALIKE))
        return Chosen(best, tuple(found))

    def _uniform(self) -> dict[str | None, Choices]:
        """By codec, that choice everywhere, where it makes sense. Raise SpecError where none does."""
        codecs: Sequence[str | None] = CODECS if any(o.codec for o in self._open.values()) else (None,)
        made: dict[str | None, Choices] = {}
        for codec in codecs:
            choices: Choices = {n: {Way(codec if o.codec else None): ()} for n, o in self._open.items()}
            try:
                self._texts.check(codec)
            except SpecError:
                if codec == codecs[-1] and not made:
                    raise
            else:
                made[codec] = choices
        return made

    # --- one statement

    def _ways(self, number: int, uniform: Mapping[str | None, Choices]) -> Iterator[Way]:
        """All that make sense for it, each codec's own route before its others."""
        for choices in uniform.values():
            (plain,) = choices[number]
            yield plain
            if self._open[number].route:
                ways = (replace(plain, route=route) for route in self._routes(choices, number))
                yield from (way for way in ways if self._makes_sense({**choices, number: {way: ()}}))

    def _routes(self, choices: Choices, number: int) -> list[str]:
        """Others that all exchanges of a statement may take."""
        from relaxc.schedule.routed import other_routes

        workers, inner = self._situation.workers, self._situation.network.per_machine
        every = [other_routes(exchange, workers, inner) for exchange in self._texts.exchanges(choices, number)]
        return [route for route in every[0] if all(route in routes for routes in every)] if every else []

    def _makes_sense(self, choices: Choices) -> bool:
        try:
            self._texts.manifest(choices)
        except SpecError:
            return False
        return True

    # --- candidates

    def _routed(self, codec: str | None, plain: Choices, ways: Mapping[int, Sequence[Way]]) -> Candidate:
        """A codec by its own route, or by others as long as each is worth it."""
        of_codec = {n: [w for w in every if w.codec in (codec, None)] for n, every in ways.items()}
        gradients = {n: e for n, e in of_codec.items() if len(e) > 1 and self._texts.is_gradient(plain, n)}

        def steps(taken: Choices) -> Iterator[Choices]:
            yield from _by_other_routes(taken, of_codec)
            yield from self._cut(taken, gradients, plain)

        return self._improved(codec or "as it stands", plain, steps)

    def _mixed(self, ways: Mapping[int, Sequence[Way]], codecs: Sequence[str | None]) -> tuple[float, Candidate] | None:
        """A codec for each bucket, and how much it loses. None where all buckets come to one codec, or what is
        exchanged is no gradient."""
        whole: Choices = {number: {every[0]: ()} for number, every in ways.items()}
        gradients = {n: every for n, every in ways.items() if self._texts.is_gradient(whole, n)}
        others = {n: every for n, every in ways.items() if n not in gradients}
        if len(codecs) == 1 or any(self._open[number].codec for number in others):
            return None
        by_own = {n: [way for way in every if way.route is None] for n, every in gradients.items()}
        plain = {**whole, **self._by_bucket(by_own, whole)}
        if len({way.codec for choice in plain.values() for way in choice if way.codec is not None}) == 1:
            return None

        def steps(taken: Choices) -> Iterator[Choices]:
            yield from _by_other_routes(taken, others)
            yield from self._cut(taken, gradients, whole)

        return self._loss(plain), self._improved("mixed", plain, steps)

    def _improved(self, name: str, plain: Choices, steps: Callable[[Choices], Iterator[Choices]]) -> Candidate:
        """`plain`, or what it comes to by steps each of which is worth it."""
        best = first = self._candidate(name, plain)
        taken: Choices | None = plain
        while taken is not None:
            tried = [(each, self._candidate(name, each)) for each in steps(taken)]
            at = _worth(best.seconds, [candidate.seconds for _, candidate in tried])
            taken, best = (None, best) if at is None else tried[at]
        return replace(best, plain=first.seconds)

    def _cut(self, taken: Choices, gradients: Mapping[int, Sequence[Way]], whole: Choices) -> Iterator[Choices]:
        """A way for each bucket of gradients, whose statements have one each in `whole`."""
        if gradients:
            yield {**taken, **self._by_bucket(gradients, {**taken, **{n: whole[n] for n in gradients}})}

    def _loss(self, choices: Choices) -> float:
        """As a place in CODECS: the mean over the elements of what is open, up to the next quarter, so that a few that
        lose less are not worth statements of their own."""
        open_ = [(CODECS.index(way.codec), p.elements) for way, p in self._texts.governed(choices) if way.codec]
        total = sum(place * elements for place, elements in open_)
        return math.ceil(4 * total / max(sum(elements for _, elements in open_), 1)) / 4

    def _candidate(self, name: str, choices: Choices) -> Candidate:
        from relaxc.schedule.fit import fit, with_fit
        from relaxc.schedule.predict import slowest

        of, manifest = self._situation, self._texts.manifest(choices)
        fitted = with_fit(manifest, fit(manifest, of.profile, of.network, of.workers))
        seconds = slowest(fitted, of.profile, of.network, of.workers, of.cores).iteration
        routes = Counter(way.route for way, _ in self._texts.governed(choices) if way.route is not None)
        return Candidate(name, self._texts.text(choices), seconds, tuple(sorted(routes.items())), seconds)

    # --- a way for each bucket

    def _by_bucket(self, ways: Mapping[int, Sequence[Way]], choices: Choices) -> dict[int, Choice]:
        """Of statements about gradients. The way with most parameters last: it needs no names."""
        from relaxc.schedule.fit import fitted_lines

        fitted = fitted_lines(self._lines(ways, choices), self._texts.manifest(choices))
        made: dict[int, Choice] = {}
        for number, every in ways.items():
            found: dict[Way, list[str]] = {}
            for of in fitted:
                for _, members, option in of.buckets() if of.line.body == number else ():
                    found.setdefault(every[option], []).extend(p.name for p in members)
            made[number] = dict(sorted(found.items(), key=lambda each: len(each[1]))) or choices[number]
        return made

    def _lines(self, ways: Mapping[int, Sequence[Way]], choices: Choices) -> list[Line]:
        """All of gradients, with an option for each way where there are several."""
        found = self._texts.lines(choices)
        for number, every in ways.items():
            by_way = [self._texts.lines({**choices, number: {way: ()}}) for way in every]
            found = [
                replace(line, options=tuple(of[n].options[0] for of in by_way)) if line.body == number else line
                for n, line in enumerate(found)
            ]
        return found


def _by_other_routes(taken: Choices, ways: Mapping[int, Sequence[Way]]) -> Iterator[Choices]:
    """One for a whole statement."""
    for number, every in ways.items():
        yield from ({**taken, number: {way: ()}} for way in every if way.route is not None)


def _worth(seconds: float, others: Sequence[float]) -> int | None:
    """The first of the others that is about as fast as their fastest, where that is shorter by enough."""
    fastest = min(others, default=seconds)
    if fastest >= seconds * (1 - GAIN):
        return None
    limit = min(fastest * (1 + ALIKE), seconds * (1 - GAIN))
    return next(number for number, each in enumerate(others) if each <= limit)
