"""Why a plan exchanges as it does, in sentences: what another codec would have saved in one lane and cost in another,
and why exchanges start and are waited for where they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from relaxc.manifest import ExchangePlan, Manifest
from relaxc.report.times import shown
from relaxc.schedule.buckets import Bucket
from relaxc.schedule.cost import Cost, exchange_cost
from relaxc.schedule.network import Network
from relaxc.wire.parameters import Parameter

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


def codec_reasons(
    manifest: Manifest, buckets: Sequence[Bucket], parameters: Sequence[Parameter], workers: int, network: Network,
    ways: Mapping[str, ExchangePlan],
) -> dict[int, str]:  # fmt: skip
    """By bucket of gradients, against the other `ways`, which are means of gradients by the name of their codec."""
    found = {}
    for number, bucket in enumerate(buckets):
        gradient = manifest.bodies[bucket.body].gradient
        assert gradient is not None
        members = [parameters[p] for p in bucket.parameters]
        mine = _text(gradient.exchange)
        others = [
            Other(name, exchange_cost(way, members, workers, network))
            for name, way in ways.items()
            if _text(way) != mine
        ]
        name = next((name for name, way in ways.items() if _text(way) == mine), mine)
        found[number] = codec_reason(name, exchange_cost(gradient.exchange, members, workers, network), others)
    return found


def _text(exchange: ExchangePlan) -> str:
    if exchange.rank:
        return f"lowrank({exchange.rank})"
    return exchange.codec.text if exchange.codec is not None else "none"


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
