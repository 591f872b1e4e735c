"""A plan fitted to a model, a network and a number of workers: which parameters leave together, and in which order.

Gradients leave in the order in which they are ready, weights in the order in which they are needed next. For weights
the same dynamic programme runs backwards in time: from when each is needed, through decoding, link and encoding, to
when the first must start, as late as possible. Where a model has several bodies or dtypes, which share no bucket, the
one with most bytes is cut first, beside the others; then each of them beside what was found; and all again, until
nothing ends earlier.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from relaxc.manifest import BucketPlan, FitPlan, Manifest, ParameterPlan, ProgramPlan, TransferPlan
from relaxc.schedule.cost import Cost, Price, price_of, slotted, total
from relaxc.schedule.machines import located
from relaxc.schedule.network import Network
from relaxc.schedule.partition import SAME, Cut, Job, Option, Partition, Seconds, finish_of, partition
from relaxc.schedule.profile import ParameterTimes, Profile
from relaxc.schedule.schedule import govern
from relaxc.wire.parameters import Parameter

AGAIN = 3
"""Times that several lines are cut once more, at most."""


@dataclass(frozen=True, slots=True)
class Line:
    """Parameters that may share a bucket, in the order in which they come, and when; the ways in which they may be
    exchanged."""

    body: int
    members: tuple[Parameter, ...]
    ready: tuple[float, ...]
    options: tuple[Option, ...]


@dataclass(frozen=True, slots=True)
class Fitted:
    """Buckets of a line, with the option of each."""

    line: Line
    found: Partition

    def jobs(self) -> list[Job]:
        return [Job(self.line.ready[c.end - 1], self._cost(c.first, c.end, c.option)) for c in self.found.cuts]

    def _cost(self, first: int, end: int, option: int) -> Seconds:
        of = self.line.options[option]
        encode, link, decode = (sum(each) for each in zip(of.fixed, *of.added[first:end], strict=True))
        return encode, link, decode

    def buckets(self) -> list[tuple[float, tuple[Parameter, ...], int]]:
        """When each may leave, what it holds, and its option."""
        return [(self.line.ready[c.end - 1], self.line.members[c.first : c.end], c.option) for c in self.found.cuts]


def fit(manifest: Manifest, profile: Profile, network: Network, workers: int) -> FitPlan:
    """Raise ModelError (RX0401) where no statement governs some parameter."""
    parameters = parameters_of(manifest, profile)
    bodies = govern(manifest, parameters)
    gradients = fitted_lines(gradient_lines(manifest, parameters, bodies, profile, network, workers), manifest)
    programs = fitted_lines(_program_lines(manifest, parameters, bodies, profile, network, workers), manifest)
    finish = max(finish_of_all(gradients), 0.0)
    leaving, needed = _ordered(gradients), _ordered(programs)
    read_by = {} if profile.late_gradients else {p.name: p.module for p in profile.parameters if p.needed is not None}
    backwards = [_needed(plan, read_by) for plan in reversed(needed)]
    return FitPlan(workers, network.source, tuple(leaving), tuple(backwards), finish)


def _needed(plan: BucketPlan, read_by: Mapping[str, str]) -> BucketPlan:
    """In the order in which forward reads them."""
    names = plan.parameters[::-1]
    return BucketPlan(plan.body, names, tuple(read_by.get(name, "") for name in names))


def with_fit(manifest: Manifest, fit: FitPlan) -> Manifest:
    """The fit is part of what workers must agree on."""
    text = hashlib.sha256(manifest.hash.encode() + msgspec.json.encode(fit)).hexdigest()
    return msgspec.structs.replace(manifest, fit=fit, hash=text)


def parameters_of(manifest: Manifest, profile: Profile) -> tuple[Parameter, ...]:
    """Those that the plan was made for, or those that were traced."""
    given: Sequence[ParameterPlan | ParameterTimes] = manifest.parameters or profile.parameters
    return tuple(Parameter(n, p.name, tuple(p.shape), p.dtype) for n, p in enumerate(given))


def _ordered(fitted: Sequence[Fitted]) -> list[BucketPlan]:
    every = [
        (ready, place, of.line.body, members) for place, of in enumerate(fitted) for ready, members, _ in of.buckets()
    ]
    in_order = sorted(every, key=lambda bucket: bucket[:2])
    return [BucketPlan(body, tuple(p.name for p in members)) for _, _, body, members in in_order]


# --- lines and what they cost


def fitted_lines(lines: Sequence[Line], manifest: Manifest) -> list[Fitted]:
    """Each cut beside the others, which are at first in one bucket each."""
    best = _cut_beside([Fitted(line, _as_one(line)) for line in lines], manifest)
    for _ in range(AGAIN if len(lines) > 1 else 0):
        tried = _cut_beside(best, manifest)
        if finish_of_all(tried) >= finish_of_all(best) * (1 - SAME):
            return best
        best = tried
    return best


def _cut_beside(fitted: Sequence[Fitted], manifest: Manifest) -> list[Fitted]:
    """Each again, that with most bytes first, beside the others as they are by then."""
    made = list(fitted)
    for number in sorted(range(len(made)), key=lambda n: -sum(p.bytes for p in made[n].line.members)):
        line = made[number].line
        beside = [job for n, other in enumerate(made) if n != number for job in other.jobs()]
        sizes = [p.bytes for p in line.members]
        found = partition(line.ready, line.options, sizes, manifest.bucket_bytes, beside)
        made[number] = Fitted(line, found)
    return made


def finish_of_all(fitted: Sequence[Fitted]) -> float:
    return finish_of([job for each in fitted for job in each.jobs()])


def _as_one(line: Line) -> Partition:
    return Partition((Cut(0, len(line.members), 0),), 0.0, 0.0, 0)


def gradient_lines(
    manifest: Manifest, parameters: Sequence[Parameter], bodies: Sequence[int], profile: Profile, network: Network,
    workers: int,
) -> list[Line]:  # fmt: skip
    """Of gradients that leave while backward runs."""
    ready = _ready(profile)
    found = []
    for (body, _), members in _together(parameters, bodies).items():
        gradient = manifest.bodies[body].gradient
        if gradient is None:
            continue
        come = sorted(members, key=lambda p: (ready.get(p.name, profile.backward), -p.number))
        price = price_of(located(gradient.exchange, network.per_machine), workers, network)
        times = tuple(ready.get(p.name, profile.backward) for p in come)
        found.append(Line(body, tuple(come), times, (option_of(price, come),)))
    return found


def _program_lines(
    manifest: Manifest, parameters: Sequence[Parameter], bodies: Sequence[int], profile: Profile, network: Network,
    workers: int,
) -> list[Line]:  # fmt: skip
    """Of what programs exchange, backwards in time: moments are before the iteration in which weights are needed."""
    needed = {p.name: p.needed for p in profile.parameters if p.needed is not None}
    found = []
    for (body, _), members in _together(parameters, bodies).items():
        program = manifest.bodies[body].program
        if program is None:
            continue
        come = sorted(members, key=lambda p: (-needed.get(p.name, profile.forward), -p.number))
        late = lands_late(program)
        times = tuple(-needed.get(p.name, profile.forward) if late else 0.0 for p in come)
        found.append(Line(body, tuple(come), times, (_program_option(program, come, network, workers),)))
    return found


def lands_late(program: ProgramPlan) -> bool:
    """Whether what it exchanges is waited for in the next forward."""
    return any(path.stages.get("tail") for path in program.paths)


def _together(parameters: Sequence[Parameter], bodies: Sequence[int]) -> Mapping[tuple[int, str], list[Parameter]]:
    found: dict[tuple[int, str], list[Parameter]] = {}
    for parameter in parameters:
        found.setdefault((bodies[parameter.number], parameter.dtype), []).append(parameter)
    return found


def _ready(profile: Profile) -> dict[str, float]:
    """Of those whose gradient comes before backward ends."""
    return {p.name: _early(p, profile) for p in profile.parameters if p.ready is not None}


def _early(times: ParameterTimes, profile: Profile) -> float:
    return profile.backward if profile.late_gradients or times.ready is None else times.ready


def option_of(price: Price, members: Sequence[Parameter]) -> Option:
    return Option(_seconds(price.fixed), [_seconds(price.added(p)) for p in members])


def _program_option(program: ProgramPlan, members: Sequence[Parameter], network: Network, workers: int) -> Option:
    """All that it exchanges in an iteration that exchanges everything, decoding first."""
    transfers = [t for t in program.transfers if not t.asynchronous]
    prices = [price_of(located(t.exchange, network.per_machine), workers, network) for t in transfers]
    fixed = total(price.fixed for price in prices)
    added = [total(_added(price, t, p) for price, t in zip(prices, transfers, strict=True)) for p in members]
    return Option(_seconds(fixed)[::-1], [_seconds(cost)[::-1] for cost in added])


def _added(price: Price, transfer: TransferPlan, parameter: Parameter) -> Cost:
    return price.added(slotted(transfer, [parameter])[0])


def _seconds(cost: Cost) -> Seconds:
    return cost.encode, cost.link, cost.decode
