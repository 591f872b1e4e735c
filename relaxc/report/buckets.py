"""The buckets of a plan, as a report tells of them: what each holds, how it is exchanged, and how long that takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from relaxc.manifest import ExchangePlan, Manifest
from relaxc.schedule.predict import Forecast
from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.schedule import first_site
from relaxc.schedule.timeline import LANES, Timeline, busy


@dataclass(frozen=True)
class BucketRow:
    """`number` is the one in timelines. `lanes` are seconds by lane, in the iteration that the timeline shows."""

    number: int
    what: str
    codec: str
    statement: str
    parameters: tuple[ParameterTimes, ...]
    lanes: tuple[tuple[str, float], ...]

    @property
    def elements(self) -> int:
        return sum(_elements(p) for p in self.parameters)


def _elements(parameter: ParameterTimes) -> int:
    count = 1
    for side in parameter.shape:
        count *= side
    return count


def bucket_rows(manifest: Manifest, profile: Profile, forecast: Forecast, timeline: Timeline) -> list[BucketRow]:
    """Those of gradients first, in the order in which they leave; the census is none."""
    return [*_gradients(manifest, profile, forecast, timeline), *_programs(manifest, profile, forecast, timeline)]


def _gradients(manifest: Manifest, profile: Profile, forecast: Forecast, timeline: Timeline) -> Iterator[BucketRow]:
    for number, bucket in enumerate(forecast.schedule.buckets):
        body = manifest.bodies[bucket.body]
        assert body.gradient is not None
        yield BucketRow(
            number, _named("gradients", body.gradient.exchange), _coded(body.gradient.exchange), body.statement,
            tuple(profile.parameters[p] for p in bucket.parameters), _lanes(timeline, number),
        )  # fmt: skip


def _programs(manifest: Manifest, profile: Profile, forecast: Forecast, timeline: Timeline) -> Iterator[BucketRow]:
    for number, bucket in enumerate(forecast.sites, first_site(forecast.schedule)):
        body = manifest.bodies[bucket.body]
        assert body.program is not None
        exchanges = [transfer.exchange for transfer in body.program.transfers]
        yield BucketRow(
            number, ", ".join(dict.fromkeys(_named("", e) for e in exchanges)) or "nothing is exchanged",
            ", ".join(dict.fromkeys(map(_coded, exchanges))), body.statement,
            tuple(profile.parameters[p] for p in bucket.parameters), _lanes(timeline, number),
        )  # fmt: skip


def _lanes(timeline: Timeline, number: int) -> tuple[tuple[str, float], ...]:
    spans = [s for s in timeline.spans if s.bucket == number]
    return tuple((lane, busy(spans, lane)) for lane in LANES)


def _named(of: str, exchange: ExchangePlan) -> str:
    over = f" over {exchange.topology[0]}" if exchange.topology is not None else ""
    route = f", route {exchange.route}" if exchange.route != "all" else ""
    return f"{exchange.kind}{over}{' of ' + of if of else ''}{route}"


def _coded(exchange: ExchangePlan) -> str:
    if exchange.rank:
        return f"lowrank({exchange.rank})"
    return exchange.codec.text if exchange.codec is not None else "none"
