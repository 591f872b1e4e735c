"""Why a plan exchanges as it does, in sentences: what another codec or route would have saved in one lane and cost in
another, and why exchanges start and are waited for where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from relaxc.manifest import CodecPlan, ExchangePlan, Manifest
from relaxc.report.times import shown
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.cost import Cost, exchange_cost
from relaxc.schedule.machines import located
from relaxc.schedule.network import Network
from relaxc.schedule.routed import layout_of, other_routes
from relaxc.wire.layout import EXACT
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import DEFAULT_ROUTE

SMALL = 1e-6
"""Seconds that are not worth a word."""
WHEN = {
    "begin": "when the iteration before has ended", "backward": "at the end of backward",
    "before": "first in optimizer.step()", "after": "last in optimizer.step()", "tail": "before the next forward",
}  # fmt: skip


@dataclass(frozen=True)
class Other:
    """Another way to exchange gradients: what it is called, and what it costs a bucket."""

    name: str
    cost: Cost


def codec_reason(chosen: str, cost: Cost, others: Sequence[Other]) -> str:
    """`bf16 here: 8bit would save 0.3 ms of link and cost 0.5 ms of encode`."""
    told = [_against(cost, other) for other in others]
    return f"{chosen} here: {'; '.join(told)}" if told else f"{chosen} here"


def _against(cost: Cost, other: Other) -> str:
    lanes = [(lane, getattr(cost, lane) - getattr(other.cost, lane)) for lane in ("encode", "link", "decode")]
    saved = [f"{shown(gain)} of {lane}" for lane, gain in lanes if gain > SMALL]
    paid = [f"{shown(-gain)} of {lane}" for lane, gain in lanes if gain < -SMALL]
    if not saved and not paid:
        return f"{other.name} would cost the same"
    parts = ([f"save {_listed(saved)}"] if saved else []) + ([f"cost {_listed(paid)}"] if paid else [])
    return f"{other.name} would {' and '.join(parts)}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def way_reasons(
    manifest: Manifest, buckets: Sequence[Bucket], parameters: Sequence[Parameter], workers: int, network: Network,
    codecs: Mapping[str, ExchangePlan], exact: CodecPlan,
) -> dict[int, str]:  # fmt: skip
    """By bucket of gradients, against the other `codecs`, which are means of gradients by name, and against its own
    codec by other routes; `exact` is what carries plain numbers by those."""
    inner, found = network.per_machine, {}
    for number, bucket in enumerate(buckets):
        gradient = manifest.bodies[bucket.body].gradient
        assert gradient is not None
        members, mine = [parameters[p] for p in bucket.parameters], located(gradient.exchange, inner)
        text = _text(mine)
        ways = {name: way for name, way in codecs.items() if _text(way) != text}
        ways |= _by_other_routes(mine, exact, workers, inner)
        others = [Other(name, exchange_cost(way, members, workers, network)) for name, way in ways.items()]
        name = next((name for name, way in codecs.items() if _text(way) == text), text)
        route = "" if mine.route == DEFAULT_ROUTE else f" by {mine.route}"
        found[number] = codec_reason(name + route, exchange_cost(mine, members, workers, network), others)
    return found


def _by_other_routes(exchange: ExchangePlan, exact: CodecPlan, workers: int, inner: int) -> dict[str, ExchangePlan]:
    if exchange.rank:
        return {}
    found: dict[str, ExchangePlan] = {}
    for route in other_routes(exchange, workers, inner):
        if route == DEFAULT_ROUTE and _text(exchange) == "none":
            found["an all-reduce"] = replace(exchange, route=route, codec=None)
        else:
            found[f"route {route}"] = located(replace(exchange, route=route, codec=exchange.codec or exact), inner)
    return found


def _text(exchange: ExchangePlan) -> str:
    if exchange.rank:
        return f"lowrank({exchange.rank})"
    if exchange.codec is None or layout_of(exchange.codec) == EXACT:
        return "none"
    return exchange.codec.text


def bucket_reason(manifest: Manifest) -> str:
    """Why buckets are what they are."""
    fit = manifest.fit
    if fit is None:
        return (
            "buckets are closed when full: the plan was compiled without a network to fit them to "
            "(relaxc compile --model M --sample S --network N --workers W)"
        )
    last = (
        f"; by its costs the last gradient is there {shown(fit.finish)} after backward begins" if fit.gradients else ""
    )
    return f"buckets are fitted to this model, for {fit.workers} workers over {fit.network}{last}"


def moments(manifest: Manifest) -> Iterator[str]:
    """Why each exchange of a program starts and is waited for where it is, over all paths."""
    told: dict[str, None] = {}
    for body in manifest.bodies:
        for path in body.program.paths if body.program is not None else ():
            for stage, operations in path.stages.items():
                for operation in operations:
                    if operation.kind in ("start", "finish") and operation.why and body.program is not None:
                        kind = body.program.transfers[operation.number].exchange.kind
                        verb = "starts" if operation.kind == "start" else "is waited for"
                        told[f"`{body.statement}`: {WHEN[stage]}, the {kind} {verb}: {operation.why}"] = None
    yield from told
