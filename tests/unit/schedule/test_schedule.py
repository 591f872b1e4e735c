"""Buckets, pieces, actions: what leaves together, in which cuts, and that all workers agree on it."""

from __future__ import annotations

from collections import Counter

import plans_by_hand as by_hand
import pytest

from relaxc.errors import ModelError
from relaxc.manifest import CodecPlan, Manifest
from relaxc.schedule.buckets import cut_buckets
from relaxc.schedule.pieces import chunk_bytes, cut_pieces, cut_whole
from relaxc.schedule.programs import program_buckets
from relaxc.schedule.schedule import govern, idle_bodies, layout_of, make_schedule, residual_of
from relaxc.wire.parameters import Parameter

KIB = 1024
MATRICES = (">=", "ndim", 2)
VECTORS = ("<", "ndim", 2)


def parameters(*kib: int, dtype: str = "f32") -> list[Parameter]:
    return [Parameter(n, f"p{n}", (size * KIB // 4,), dtype) for n, size in enumerate(kib)]


def gradients(codec: CodecPlan | None = None, **given: str) -> Manifest:
    return by_hand.manifest(by_hand.body(None, by_hand.exchange(codec=codec, **given)))


def members(cut: tuple[object, ...]) -> list[tuple[int, ...]]:
    return [bucket.parameters for bucket in cut]  # type: ignore[attr-defined]


def test_buckets_fill_in_reverse_order_of_registration() -> None:
    cut = cut_buckets(parameters(40, 40, 40, 40, 10), [0] * 5, 16 * KIB, [100 * KIB])
    assert members(cut) == [(4, 3), (2, 1, 0)]


def test_a_tensor_above_the_limit_closes_its_bucket() -> None:
    cut = cut_buckets(parameters(1, 500, 1), [0] * 3, KIB // 2, [100 * KIB])
    assert members(cut) == [(2,), (1,), (0,)]
    assert members(cut_buckets(parameters(1, 500, 1, 1), [0] * 4, KIB // 2, [100 * KIB])) == [(3,), (2, 1), (0,)]


def test_bodies_and_dtypes_do_not_mix() -> None:
    mixed = [*parameters(1, 1), Parameter(2, "h", (8,), "f16"), Parameter(3, "q", (8,), "f32")]
    cut = cut_buckets(mixed, [0, 1, 1, 0], KIB * 64, [KIB * 64] * 2)
    assert sorted(sorted(m) for m in members(cut)) == [[0, 3], [1], [2]]


@pytest.mark.parametrize("workers", [1, 3, 4])
def test_pieces_cover_every_element_once_at_block_borders(workers: int) -> None:
    given = parameters(1, 700, 33, 0, 2048)
    layout = layout_of(by_hand.MINMAX)
    pieces = cut_pieces(given, layout, workers, 32 * KIB)
    seen: Counter[tuple[int, int]] = Counter()
    for piece in pieces:
        for chunk in piece:
            for r in chunk:
                assert r.first % layout.block == 0
                seen.update((r.parameter, block) for block in range(r.first // 512, -(-(r.first + r.elements) // 512)))
    assert set(seen.values()) == {1}
    assert len(seen) == sum(-(-p.elements // 512) for p in given)


def test_pieces_are_of_nearly_one_size() -> None:
    """A share just above the limit gives two halves, not a whole and a crumb."""
    given = parameters(4096)
    layout = layout_of(by_hand.MINMAX)
    sizes = [chunk_bytes(piece[0], layout, 4) for piece in cut_pieces(given, layout, 4, 256 * KIB)]
    assert len(sizes) == 2
    assert max(sizes) - min(sizes) <= 520


@pytest.mark.parametrize("route", ["all", "ring"])
@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_what_one_worker_sends_another_receives(route: str, workers: int) -> None:
    dense = by_hand.body(("<", "ndim", 1), by_hand.exchange())
    plan = by_hand.manifest(dense, by_hand.body(None, by_hand.exchange(codec=by_hand.MINMAX, route=route)))
    given = [*parameters(5, 600, 1), Parameter(3, "scalar", (), "f32")]
    world = [make_schedule(plan, given, workers, rank) for rank in range(workers)]
    ends: dict[str, Counter[tuple[int, int, int, int]]] = {"send": Counter(), "receive": Counter()}
    for rank, schedule in enumerate(world):
        for piece in schedule.pieces:
            for action in (a for phase in piece.phases for a in phase if a.kind in ends):
                pair = (rank, action.peer) if action.kind == "send" else (action.peer, rank)
                ends[action.kind][*pair, action.tag, piece.buffers[action.buffer]] += 1
    assert ends["send"] == ends["receive"]
    assert all(count == 1 for count in ends["send"].values())
    assert len({len(schedule.pieces) for schedule in world}) == 1


def test_predicted_bytes_by_hand() -> None:
    """One tensor of 4 whole blocks among 2 workers: each sends the other 2 blocks of contribution and 2 of result, and a
    census of one byte."""
    schedule = make_schedule(gradients(by_hand.MINMAX), [Parameter(0, "p", (2048,), "f32")], 2, 0)
    assert schedule.sent_bytes == 2 * 2 * 520 + 1
    assert schedule.wire_bytes == schedule.sent_bytes
    dense = make_schedule(gradients(), [Parameter(0, "p", (2048,), "f32")], 4, 0)
    assert dense.sent_bytes == 2048 * 4 + 3
    assert dense.wire_bytes == 1.5 * 2048 * 4 + 3


def test_a_parameter_without_a_statement_is_an_error() -> None:
    plan = by_hand.manifest(by_hand.body(VECTORS, by_hand.exchange()))
    with pytest.raises(ModelError, match="governs parameter matrix") as caught:
        make_schedule(plan, [Parameter(0, "matrix", (2, 2), "f32")], 1, 0)
    assert caught.value.code == "RX0401"


def test_groups_do_not_mix() -> None:
    cut = cut_buckets(parameters(1, 1, 1), [0] * 3, KIB * 64, [KIB * 64], ["a", "b", "a"])
    assert [(b.group, b.parameters) for b in cut] == [("a", (2, 0)), ("b", (1,))]


def test_bodies_without_a_mean_of_gradients_are_in_no_bucket() -> None:
    program = by_hand.program(by_hand.transfer(by_hand.exchange()))
    plan = by_hand.manifest(by_hand.body(MATRICES, by_hand.exchange()), by_hand.body(None, None, program))
    given = [Parameter(0, "v", (8,), "f32"), Parameter(1, "m", (2, 2), "f32"), Parameter(2, "w", (8,), "f32")]
    schedule = make_schedule(plan, given, 2, 0)
    assert [b.parameters for b in schedule.buckets] == [(1,)]
    assert schedule.sent_bytes == 16 + 3
    assert [b.parameters for b in program_buckets(plan, given, schedule.bodies, ["x", "x", "x"])] == [(2, 0)]


def test_without_gradients_nothing_is_sent() -> None:
    plan = by_hand.manifest(by_hand.body(None, None, by_hand.program()))
    schedule = make_schedule(plan, parameters(1, 1), 3, 1)
    assert (schedule.buckets, schedule.pieces, schedule.sent_bytes) == ((), (), 0)


def test_idle_bodies() -> None:
    plan = by_hand.manifest(by_hand.body(MATRICES, by_hand.exchange()), by_hand.body(None, by_hand.exchange()))
    assert idle_bodies(plan, govern(plan, parameters(1))) == [plan.bodies[0]]


def test_a_run_that_is_one_block_is_never_cut() -> None:
    layout = layout_of(by_hand.HALF)
    given = parameters(4096, 2, 4096)
    whole = cut_whole(given, layout, 64 * KIB)
    assert [[(r.parameter, r.first, r.elements) for r in piece[0]] for piece in whole] == [
        [(0, 0, 1024 * KIB)],
        [(1, 0, 512), (2, 0, 1024 * KIB)],
    ]
    owned = [r for piece in cut_pieces(given, layout, 3, 64 * KIB) for chunk in piece for r in chunk]
    assert sorted((r.parameter, r.first, r.elements) for r in owned) == [(p.number, 0, p.elements) for p in given]


def test_residuals_by_feedback() -> None:
    """3 blocks among 2 workers: the first run, a block, is worker 0's, the other, two blocks, worker 1's."""
    parameter = Parameter(0, "p", (1100,), "f32")
    kept = {
        feedback: residual_of(by_hand.exchange(codec=by_hand.MINMAX, feedback=feedback), parameter, 2, 1)
        for feedback in ("none", "worker", "both")
    }
    assert [(k.worker, k.owner) for k in kept.values()] == [(0, (0, 0)), (1100, (0, 0)), (1100, (512, 1100))]
    mix = residual_of(by_hand.exchange("mix", by_hand.MINMAX, feedback="worker"), parameter, 2, 1)
    assert (mix.worker, mix.owner) == (1100, (0, 0))
    assert residual_of(None, parameter, 2, 1).worker == 0
