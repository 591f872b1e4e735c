"""An exchange of a program, fitted to one bucket, a number of workers and one of them.

Where a fragment makes the messages, or reads them, the kernels that a route would run for that are left out; `encodes`
and `decodes` say on which ranges and buffers the fragment is called instead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxc.manifest import ExchangePlan, TransferPlan
from relaxc.schedule.actions import Action, Chunks, Piece, bind
from relaxc.schedule.pieces import Chunk
from relaxc.schedule.routed import cut_for, layout_of, phases_of
from relaxc.wire.low_rank import factors_of
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import done_by_fragments, kernels_of


@dataclass(frozen=True, slots=True)
class Coding:
    """One call of a fragment: `buffers` of piece number `piece` are the message that it makes, or those that it
    decodes, in order; of those, number `own` is this worker's own message, if one is (else -1)."""

    piece: int
    ranges: Chunk
    buffers: tuple[int, ...]
    own: int = -1


@dataclass(frozen=True, slots=True)
class TransferSchedule:
    """`dense_bytes` is what is all-reduced where no codec is used; then there are no pieces. `sent_bytes` are handed to
    c10d each time. The next bucket of the same transfer begins at tag `next_tag`."""

    pieces: tuple[Piece, ...]
    encodes: tuple[Coding, ...]
    decodes: tuple[Coding, ...]
    dense_bytes: int
    sent_bytes: int
    next_tag: int


def schedule_transfer(
    transfer: TransferPlan, members: Sequence[Parameter], bucket: int, workers: int, rank: int, piece_bytes: int, *,
    targets: Sequence[int] = (), sources: Sequence[int] = (), first_tag: int = 0, few_piece_bytes: int = 0,
) -> TransferSchedule:  # fmt: skip
    """`members` are the bucket's parameters, of one dtype. For those with neighbours, `targets` are the ranks that this
    worker's message goes to and `sources` those whose messages it adds up; whether they name the worker itself makes no
    difference."""
    exchange = transfer.exchange
    members = members_of(transfer, members)
    if exchange.codec is None:
        size = sum(dense_elements(exchange, p) * p.real_bytes for p in members)
        return TransferSchedule((), (), (), size, size if workers > 1 else 0, first_tag)
    layout = layout_of(exchange.codec)
    phases, legs = phases_of(exchange, workers, rank, targets, sources)
    cut = cut_for(exchange, members, workers, piece_bytes, few_piece_bytes)
    kernels = kernels_of(exchange.kind, exchange.route, exchange.feedback, exchange.coded, exchange.codec.guarded)
    elsewhere = done_by_fragments(transfer.leaves, transfer.lands)
    bound = [
        bind(
            phases,
            kernels,
            Chunks(chunks, layout, members[0].real_bytes),
            rank,
            first_tag + i * legs,
            bucket,
            elsewhere,
        )
        for i, chunks in enumerate(cut)
    ]
    pieces = tuple(piece for piece, _taken in bound)
    taken = [(number, action) for number, (_piece, actions) in enumerate(bound) for action in actions]
    return TransferSchedule(
        pieces,
        tuple(_coding(number, a) for number, a in taken if a.buffer >= 0),
        tuple(_coding(number, a) for number, a in taken if a.buffer < 0),
        0,
        sum(piece.sent for piece in pieces),
        first_tag + legs * len(pieces),
    )


def dense_elements(exchange: ExchangePlan, parameter: Parameter) -> int:
    """What is all-reduced of a parameter, in both steps of an exchange of low rank."""
    if not exchange.rank:
        return parameter.elements
    factors = factors_of(parameter.shape, exchange.rank)
    return factors.p + factors.q


def members_of(transfer: TransferPlan, members: Sequence[Parameter]) -> Sequence[Parameter]:
    """What is sent of a bucket's parameters: of cells one element each, of those without elements too."""
    return [replace(p, shape=()) for p in members] if transfer.shape == "cell" else members


def _coding(piece: int, action: Action) -> Coding:
    return Coding(piece, action.ranges, (action.buffer,) if action.buffer >= 0 else action.inputs, action.own)
