"""The exchange of gradients, fitted to a model, a number of workers and one of them: buckets, pieces, actions, and what
they will send. What programs exchange is in transfers.py."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxc.errors import ModelError
from relaxc.manifest import BodyPlan, ExchangePlan, GradientPlan, Manifest
from relaxc.schedule.actions import Chunks, Piece, bind, census
from relaxc.schedule.buckets import Bucket, cut_buckets, fitted_buckets
from relaxc.schedule.routed import cut_for, layout_of, phases_of
from relaxc.wire.ownership import shares
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import kernels_of
from relaxc.wire.selection import assign


@dataclass(frozen=True, slots=True)
class Schedule:
    """`bodies[i]` governs parameter i. Pieces are in the order in which they leave; a dense bucket has none.

    The last piece, behind the last bucket's, is the census of which parameters had a gradient. Parameters of bodies
    without a mean of gradients are in no bucket; without any bucket there is no census.
    """

    workers: int
    rank: int
    bodies: tuple[int, ...]
    buckets: tuple[Bucket, ...]
    pieces: tuple[Piece, ...]
    dense_bytes: tuple[int, ...]

    @property
    def sent_bytes(self) -> int:
        """Bytes that this worker hands to c10d in one iteration: messages sent, and buffers all-reduced."""
        return sum(p.sent for p in self.pieces) + sum(self.dense_bytes)

    @property
    def wire_bytes(self) -> int:
        """Payload that leaves this worker in one iteration: an all-reduce sends 2 (n - 1) / n of its buffer (ring)."""
        reduced = 2 * (self.workers - 1) * sum(self.dense_bytes) // self.workers
        return sum(p.sent for p in self.pieces) + reduced


def first_site(schedule: Schedule) -> int:
    """Where a timeline has one number for each bucket, those of programs come behind those of gradients and the
    census."""
    return len(schedule.buckets) + 1 if schedule.buckets else 0


def govern(manifest: Manifest, parameters: Sequence[Parameter]) -> tuple[int, ...]:
    """The body of each parameter. Raise ModelError (RX0401) where a parameter has none."""
    found = assign([body.selector for body in manifest.bodies], parameters)
    missing = [p.name for p, body in zip(parameters, found, strict=True) if body is None]
    if missing:
        more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
        raise ModelError(
            "RX0401",
            f"no statement of {manifest.spec} governs parameter {missing[0]}{more}",
            "end the spec with a statement that has no selector, such as `relax gradients`",
        )
    return tuple(body for body in found if body is not None)


def idle_bodies(manifest: Manifest, bodies: Sequence[int]) -> list[BodyPlan]:
    """Statements that govern none of the model's parameters."""
    used = set(bodies)
    return [body for number, body in enumerate(manifest.bodies) if number not in used]


def make_schedule(manifest: Manifest, parameters: Sequence[Parameter], workers: int, rank: int) -> Schedule:
    bodies = govern(manifest, parameters)
    gradients = [body.gradient for body in manifest.bodies]
    buckets = _buckets(manifest, gradients, parameters, bodies)
    pieces: list[Piece] = []
    dense: list[int] = []
    tag = 0
    for number, bucket in enumerate(buckets):
        members = [parameters[p] for p in bucket.parameters]
        gradient = gradients[bucket.body]
        assert gradient is not None
        exchange = gradient.exchange
        if exchange.codec is None:
            dense.append(sum(p.bytes for p in members))
            continue
        layout, (phases, legs) = layout_of(exchange.codec), phases_of(exchange, workers, rank)
        kernels = kernels_of(exchange.kind, exchange.route, exchange.feedback, exchange.coded)
        for chunks in cut_for(exchange, members, workers, manifest.piece_bytes, manifest.few_piece_bytes):
            pieces.append(bind(phases, kernels, Chunks(chunks, layout, members[0].real_bytes), rank, tag, number)[0])
            tag += legs
    if buckets:
        pieces.append(census(len(parameters), workers, rank, tag, len(buckets)))
    return Schedule(workers, rank, bodies, buckets, tuple(pieces), tuple(dense))


def _buckets(
    manifest: Manifest, gradients: Sequence[GradientPlan | None], parameters: Sequence[Parameter], bodies: Sequence[int]
) -> tuple[Bucket, ...]:
    limits = [manifest.coded_bucket_bytes if g and g.exchange.codec else manifest.bucket_bytes for g in gradients]
    exchanged = [p for p in parameters if gradients[bodies[p.number]]]
    of = [bodies[p.number] for p in exchanged]
    fitted, left = fitted_buckets(manifest.fit.gradients if manifest.fit else (), exchanged, of)
    cut = cut_buckets([exchanged[n] for n in left], [of[n] for n in left], manifest.first_bucket_bytes, limits)
    return (*fitted, *cut)


@dataclass(frozen=True, slots=True)
class ResidualElements:
    """Elements of residual that a worker keeps for a parameter: its own (all of them or none), and the owner's
    range."""

    worker: int
    owner: tuple[int, int]


def residual_of(exchange: ExchangePlan | None, parameter: Parameter, workers: int, rank: int) -> ResidualElements:
    """What `exchange` remembers of a parameter; None stands for no exchange."""
    if exchange is not None and exchange.rank and exchange.feedback != "none":
        return ResidualElements(parameter.elements, (0, 0))
    if exchange is None or exchange.codec is None or exchange.feedback == "none":
        return ResidualElements(0, (0, 0))
    kernels = kernels_of(exchange.kind, exchange.route, exchange.feedback, exchange.coded)
    mine = any(k.residual and not k.owner for k in kernels)
    theirs = any(k.residual and k.owner for k in kernels)
    share = shares(parameter.number, parameter.elements, layout_of(exchange.codec), workers)[rank]
    return ResidualElements(parameter.elements if mine else 0, share if theirs else (0, 0))
