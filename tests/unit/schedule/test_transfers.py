"""Exchanges of programs: who sends what, what is left to fragments, how many bytes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import plans_by_hand as by_hand
import pytest

from relaxc.manifest import TransferPlan
from relaxc.schedule.actions import Piece
from relaxc.schedule.pieces import Range
from relaxc.schedule.transfers import TransferSchedule, schedule_transfer
from relaxc.wire.parameters import Parameter

MEMBERS = [Parameter(2, "c", (1100,), "f32"), Parameter(1, "b", (3,), "f32"), Parameter(0, "a", (0,), "f32")]
PIECE_BYTES = 600
MEAN = by_hand.exchange(codec=by_hand.MINMAX)
CODED = by_hand.exchange(codec=by_hand.MINMAX, coded=True)
MIX = by_hand.exchange("mix", by_hand.MINMAX)


def ring(workers: int, rank: int) -> list[int]:
    return sorted({(rank - 1) % workers, (rank + 1) % workers})


def world(
    transfer: TransferPlan, workers: int, neighbours: Callable[[int, int], list[int]] = ring
) -> list[TransferSchedule]:
    return [
        schedule_transfer(
            transfer, MEMBERS, 4, workers, rank, PIECE_BYTES,
            targets=neighbours(workers, rank), sources=neighbours(workers, rank), first_tag=10,
        )
        for rank in range(workers)
    ]  # fmt: skip


def runs(piece: Piece) -> list[str]:
    return [a.kernel.name for phase in piece.phases for a in phase if a.kernel]


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("exchange", [MEAN, CODED, MIX, by_hand.exchange("sum", by_hand.HALF, route="ring")])
@pytest.mark.parametrize("kinds", [("slot", "slot"), ("code", "code"), ("code", "slot")])
def test_what_one_worker_sends_another_receives(exchange: object, workers: int, kinds: tuple[str, str]) -> None:
    everyone = world(by_hand.transfer(exchange, *kinds), workers)  # type: ignore[arg-type]
    ends: dict[str, Counter[tuple[int, ...]]] = {"send": Counter(), "receive": Counter()}
    for rank, schedule in enumerate(everyone):
        for piece in schedule.pieces:
            assert piece.bucket == 4
            for action in (a for phase in piece.phases for a in phase if a.kind in ends):
                pair = (rank, action.peer) if action.kind == "send" else (action.peer, rank)
                ends[action.kind][*pair, action.tag, piece.buffers[action.buffer]] += 1
                assert 10 <= action.tag < schedule.next_tag
    assert ends["send"] == ends["receive"]
    assert all(count == 1 for count in ends["send"].values())
    assert len({(len(s.pieces), s.next_tag, *(len(p.phases) for p in s.pieces)) for s in everyone}) == 1


def test_bytes_by_hand() -> None:
    """The code of the bucket is 3 blocks and 3 elements: 1100 + 24 + 11 bytes. In a ring of 4 each sends it to two, in a
    mean of codes among 4 to three."""
    assert [s.sent_bytes for s in world(by_hand.transfer(MIX), 4)] == [2 * 1135] * 4
    assert [s.sent_bytes for s in world(by_hand.transfer(CODED), 4)] == [3 * 1135] * 4
    assert sum(s.sent_bytes for s in world(by_hand.transfer(MEAN), 4)) == 2 * 3 * 1135


def test_plain_numbers_are_all_reduced_in_the_arithmetic_type() -> None:
    half = [Parameter(0, "a", (10,), "bf16")]
    dense = by_hand.transfer(by_hand.exchange("sum"))
    one, two = (schedule_transfer(dense, half, 0, workers, 0, PIECE_BYTES, first_tag=3) for workers in (1, 2))
    assert (two.pieces, two.dense_bytes, two.sent_bytes, two.next_tag) == ((), 40, 40, 3)
    assert one.sent_bytes == 0


def test_directed_neighbours() -> None:
    """Each sends to the next and hears the one before."""
    made = schedule_transfer(by_hand.transfer(MIX), MEMBERS, 0, 4, 1, PIECE_BYTES, targets=[1, 2], sources=[0, 1])
    for piece in made.pieces:
        assert [(a.kind, a.peer) for phase in piece.phases for a in phase if a.kernel is None] == [
            ("send", 2),
            ("receive", 0),
        ]
        gather = piece.phases[1][-1]
        # own message is buffer 0, that of rank 0 comes first all the same
        assert gather.inputs == (1, 0)


def test_kernels_that_fragments_replace_are_left_out() -> None:
    for exchange, kept in ((MEAN, {"combine"}), (CODED, set()), (MIX, set())):
        for schedule in world(by_hand.transfer(exchange, "code", "code"), 3):
            assert {name for piece in schedule.pieces for name in runs(piece)} <= kept
    assert runs(world(by_hand.transfer(MIX, "code", "slot"), 3)[0].pieces[0]) == ["gather"]
    assert runs(world(by_hand.transfer(MIX), 3)[0].pieces[0]) == ["contribute", "gather"]


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("exchange", [MEAN, CODED, MIX])
def test_fragments_are_called_for_each_element_once(exchange: object, workers: int) -> None:
    elements = {(p.number, e) for p in MEMBERS for e in range(p.elements)}
    for rank, schedule in enumerate(world(by_hand.transfer(exchange, "code", "code"), workers)):  # type: ignore[arg-type]
        for codings in (schedule.encodes, schedule.decodes):
            seen = Counter(e for c in codings for r in c.ranges for e in covered(r))
            assert set(seen) == elements and set(seen.values()) == {1}
        for coding in schedule.encodes:
            assert len(coding.buffers) == 1
        sent = {
            (number, a.buffer)
            for number, piece in enumerate(schedule.pieces)
            for phase in piece.phases
            for a in phase
            if a.kind == "send" and a.tag % 2 == 0
        }
        made = {(c.piece, c.buffers[0]) for c in schedule.encodes}
        assert workers == 1 or exchange is not MEAN or sent <= made, rank


def covered(r: Range) -> list[tuple[int, int]]:
    return [(r.parameter, e) for e in range(r.first, r.first + r.elements)]


def test_a_mean_of_codes_is_summed_in_rank_order() -> None:
    made = schedule_transfer(by_hand.transfer(CODED, "code", "code"), MEMBERS, 0, 3, 1, 1 << 20)
    (piece,), (decode,), (encode,) = made.pieces, made.decodes, made.encodes
    makers = {encode.buffers[0]: 1} | {a.buffer: a.peer for a in piece.phases[1] if a.kind == "receive"}
    assert [makers[b] for b in decode.buffers] == [0, 1, 2]
