"""Variants with their predicted iterations, the fastest first; and over networks, which of them pays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from relaxc.language.diagnostics import SpecError
from relaxc.manifest import Manifest, encode
from relaxc.schedule.control import ASYNC
from relaxc.schedule.network import Line, Network
from relaxc.schedule.predict import Forecast, slowest
from relaxc.schedule.profile import Profile
from relaxc.schedule.timeline import Timeline
from relaxc.tune.grid import Variant

ALIKE = 0.02
"""Iterations that differ by less count as equal: the one that relaxes less is the answer."""
PIECES = 64
"""Of an exchange, at most so many where whole maps are predicted: more take longer and tell no more."""
ToManifest = Callable[[Variant], Manifest]
Tell = Callable[[], None]


@dataclass(frozen=True)
class Candidate:
    """`order` is its place in the grid: the lower, the less it relaxes."""

    variant: Variant
    manifest: Manifest
    order: int

    @property
    def staleness(self) -> str:
        """Of the most stale of its bodies, in iterations."""
        found = [body.staleness for body in self.manifest.bodies]
        return "any" if ASYNC in found else str(max(found, default=0))


@dataclass(frozen=True)
class Ranked:
    candidate: Candidate
    timeline: Timeline


@dataclass(frozen=True)
class Candidates:
    """`refused` are variants that the language doesn't have, with the reason; those that come to the same program as
    an earlier one are left out."""

    found: tuple[Candidate, ...]
    refused: tuple[tuple[Variant, str], ...]


def candidates(variants: Iterable[Variant], to_manifest: ToManifest) -> Candidates:
    found: dict[bytes, Candidate] = {}
    refused = []
    for order, variant in enumerate(variants):
        try:
            manifest = to_manifest(variant)
        except SpecError as error:
            refused.append((variant, error.diagnostics[0].message))
            continue
        found.setdefault(_meaning(manifest), Candidate(variant, manifest, order))
    return Candidates(tuple(found.values()), tuple(refused))


def _meaning(manifest: Manifest) -> bytes:
    """The same for those that differ in how they are written only."""
    bodies = tuple(msgspec.structs.replace(body, statement="") for body in manifest.bodies)
    return encode(msgspec.structs.replace(manifest, hash="", bodies=bodies))


def ranked(
    found: Sequence[Candidate], profile: Profile, network: Network, workers: int, cores: int, tell: Tell = lambda: None
) -> list[Ranked]:
    """The fastest first."""
    result = []
    for candidate in found:
        result.append(Ranked(candidate, slowest(candidate.manifest, profile, network, workers, cores)))
        tell()
    return sorted(result, key=lambda r: (r.timeline.iteration, r.candidate.order))


def _forecast(manifest: Manifest, profile: Profile, network: Network, workers: int) -> Forecast:
    return Forecast(manifest, profile, workers, per_machine=network.per_machine)


def best(times: Mapping[int, float]) -> int:
    """Of iterations by order: the one that relaxes least among those that are about as fast as the fastest."""
    fastest = min(times.values())
    return min(order for order, seconds in times.items() if seconds <= fastest * (1 + ALIKE))


# --- over networks


@dataclass(frozen=True)
class Map:
    """`answers[row][column]` is the order of the best candidate at that latency and bandwidth, `gain` how many times
    faster it is than the candidate that relaxes least."""

    bandwidths: tuple[float, ...]
    """Bits a second."""
    latencies: tuple[float, ...]
    answers: tuple[tuple[int, ...], ...]
    gains: tuple[tuple[float, ...], ...]


BANDWIDTHS = tuple(1e7 * 10 ** (n / 3) for n in range(13))
"""0.01 to 100 Gbit/s."""
LATENCIES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)


def mapped(
    found: Sequence[Candidate], profile: Profile, network: Network, workers: int, cores: int,
    bandwidths: Sequence[float] = BANDWIDTHS, latencies: Sequence[float] = LATENCIES, tell: Tell = lambda: None,
) -> Map:  # fmt: skip
    """Links within a machine and codecs stay what they are in `network`; links between machines are varied."""
    forecasts = {c.order: _forecast(_coarse(c.manifest, profile), profile, network, workers) for c in found}
    least = min(forecasts)
    answers, gains = [], []
    for latency in latencies:
        row = []
        for bandwidth in bandwidths:
            other = _with_link(network, Line(latency, 8 / bandwidth))
            times = {order: forecast.over(other, cores).iteration for order, forecast in forecasts.items()}
            chosen = best(times)
            row.append((chosen, times[least] / times[chosen]))
            tell()
        answers.append(tuple(chosen for chosen, _ in row))
        gains.append(tuple(gain for _, gain in row))
    return Map(tuple(bandwidths), tuple(latencies), tuple(answers), tuple(gains))


def _with_link(network: Network, link: Line) -> Network:
    return Network(link, network.workers, network.per_machine, network.inner, {}, None, network.codings, network.source,
                   network.wire)  # fmt: skip


def _coarse(manifest: Manifest, profile: Profile) -> Manifest:
    """With larger pieces where there would be many."""
    total = sum(4 * _elements(p.shape) for p in profile.parameters)
    smallest = -(-total // PIECES)
    return msgspec.structs.replace(
        manifest, piece_bytes=max(manifest.piece_bytes, min(smallest, 4 << 20)),
    )  # fmt: skip


def _elements(shape: Sequence[int]) -> int:
    count = 1
    for side in shape:
        count *= side
    return count


@dataclass(frozen=True)
class Stretch:
    """Bandwidths from `low` to `high`, in bits a second, where the same candidate is the answer."""

    low: float
    high: float
    order: int


def stretches(found: Map, row: int) -> Iterator[Stretch]:
    """Along one latency. Between two points of the map a crossover is put in the middle, on a logarithmic scale."""
    answers, points = found.answers[row], found.bandwidths
    low = points[0]
    for n, order in enumerate(answers):
        last = n + 1 == len(answers)
        if last or answers[n + 1] != order:
            high = points[n] if last else (points[n] * points[n + 1]) ** 0.5
            yield Stretch(low, high, order)
            low = high
