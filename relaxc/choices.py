"""A spec with something in place of what it leaves open: its text, its plan, its ways by parameter, its lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from relaxc import pipeline
from relaxc.language.automatic import Choice, Way, filled, rewritten
from relaxc.language.check import check
from relaxc.language.source import Source

if TYPE_CHECKING:
    from relaxc.language.syntax import File
    from relaxc.manifest import ExchangePlan, Manifest
    from relaxc.schedule.fit import Line
    from relaxc.schedule.network import Network
    from relaxc.schedule.profile import Profile
    from relaxc.wire.parameters import Parameter

Choices = Mapping[int, Choice]
"""By the number of the statement among all."""


@dataclass(frozen=True)
class Situation:
    """What is chosen by. `cores` are each worker's."""

    profile: Profile
    network: Network
    workers: int
    cores: int = 2


class Texts:
    """Each text's plan is made once."""

    def __init__(self, file: File, settings: Mapping[str, str], name: str, situation: Situation) -> None:
        self._file, self._settings, self._name, self._situation = file, settings, name, situation
        self._every = [p.name for p in situation.profile.parameters]
        self._manifests: dict[str, Manifest] = {}

    def text(self, choices: Choices) -> Source:
        return rewritten(self._file, choices, self._every)

    def check(self, codec: str | None) -> None:
        """Raise SpecError where it makes no sense for all that is open, at places of the text that was written."""
        typed = pipeline.to_typed(check(filled(self._file, codec), self._settings))
        pipeline.among(typed, [self._situation.workers])

    def manifest(self, choices: Choices) -> Manifest:
        """Raise SpecError, also for what so many workers can't do."""
        text = self.text(choices)
        if text.text not in self._manifests:
            workers = self._situation.workers
            self._manifests[text.text] = pipeline.manifest_of(text, self._settings, self._name, workers)
        return self._manifests[text.text]

    def exchanges(self, choices: Choices, number: int) -> tuple[ExchangePlan, ...]:
        """All of a statement that has one way. Raise SpecError."""
        return self.manifest(choices).bodies[number].exchanges

    def is_gradient(self, choices: Choices, number: int) -> bool:
        return self.manifest(choices).bodies[number].gradient is not None

    def governed(self, choices: Choices) -> list[tuple[Way, Parameter]]:
        """Each parameter whose statement was open, and its way."""
        parameters, bodies = self._parameters(choices)
        ways = list(_by_body(choices, len(self.manifest(choices).bodies)))
        found = [(ways[body], p) for body, p in zip(bodies, parameters, strict=True)]
        return [(way, p) for way, p in found if way is not None]

    def lines(self, choices: Choices) -> list[Line]:
        """Of gradients that leave while backward runs."""
        from relaxc.schedule.fit import gradient_lines

        of, (parameters, bodies) = self._situation, self._parameters(choices)
        return gradient_lines(self.manifest(choices), parameters, bodies, of.profile, of.network, of.workers)

    def _parameters(self, choices: Choices) -> tuple[Sequence[Parameter], Sequence[int]]:
        """And the body of each. Raise ModelError (RX0401)."""
        from relaxc.schedule.fit import parameters_of
        from relaxc.schedule.schedule import govern

        manifest = self.manifest(choices)
        parameters = parameters_of(manifest, self._situation.profile)
        return parameters, govern(manifest, parameters)


def _by_body(choices: Choices, bodies: int) -> Iterator[Way | None]:
    """The way of each statement of the text, where one of the spec's own may have become several."""
    number = made = 0
    while made < bodies:
        ways: Sequence[Way | None] = list(choices[number]) if number in choices else [None]
        yield from ways
        made += len(ways)
        number += 1
