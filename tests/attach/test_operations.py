"""The runtime's Operations, and its Engine without a compiler: kernels and exchanges made by hand, results in closed form."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import plans_by_hand as by_hand
import pytest
import torch
from pool import Pool

from relaxc.attach.engine import message_buffers, runtime_piece
from relaxc.attach.groups import make_groups
from relaxc.build.runtime import load_runtime
from relaxc.manifest import ExchangePlan, TransferPlan
from relaxc.schedule.actions import Action
from relaxc.schedule.transfers import TransferSchedule, schedule_transfer
from relaxc.wire.dither import EVERYONE, message_key
from relaxc.wire.parameters import Parameter

pytestmark = pytest.mark.timeout(600)  # the first test may build the runtime
MEMBERS = [Parameter(0, "a", (1300,), "f32"), Parameter(1, "b", (7,), "f32"), Parameter(2, "c", (2100,), "f32")]
ELEMENTS = sum(p.elements for p in MEMBERS)
OFFSETS = {0: 0, 1: 1300, 2: 1307}
PIECE_BYTES = 1200
SEED = 7


class Watch:
    """What the runtime tells."""

    def __init__(self) -> None:
        self.waits = 0
        self.broken: list[int] = []

    def on_wait(self, _seconds: float) -> None:
        self.waits += 1

    def on_failure(self, iteration: int, bucket: int, peer: int, what: str) -> None:
        raise ConnectionError(f"iteration {iteration} bucket {bucket} peer {peer}: {what}")

    def refuse(self, code: str, message: str, help: str) -> None:
        raise ValueError(f"{code} {message} {help}")

    def on_broken(self, iteration: int) -> None:
        self.broken.append(iteration)


def operations(timeout: float = 60, watch: Watch | None = None) -> Any:
    groups = make_groups(None, timeout)
    torch.distributed.barrier()  # before one leaves a group that another still connects to
    runtime = load_runtime()
    made = runtime.Operations(
        runtime.Channel(groups.exchange), groups.rank, groups.workers, SEED, str(by_hand.library()), watch or Watch()
    )
    return made, runtime


class Bucket:
    """One bucket of a transfer: its slot, messages and pieces. Fragments are `contribute` and `gather` from and to the
    slot."""

    def __init__(
        self, made: Any, runtime: ModuleType, transfer: TransferPlan, schedule: TransferSchedule, slot: torch.Tensor
    ) -> None:
        self.made, self.runtime, self.slot, self.schedule = made, runtime, slot, schedule
        self.messages = [message_buffers(piece) for piece in schedule.pieces]
        if schedule.dense_bytes:
            self.pieces = [runtime.Piece(0, sums=[slot])]
        else:
            self.pieces = [
                runtime_piece(runtime, piece, buffers, lambda a, b=buffers: self.call(a, b))
                for piece, buffers in zip(schedule.pieces, self.messages, strict=True)
            ]
        lands = "spread" if transfer.exchange.kind == "mean" and not transfer.exchange.coded else "gather"
        self.encodes = [
            self._made("contribute", c.ranges, [], self.messages[c.piece][c.buffers[0]]) for c in schedule.encodes
        ]
        self.decodes = [
            self._made(lands, c.ranges, [self.messages[c.piece][b] for b in c.buffers], None) for c in schedule.decodes
        ]

    def call(self, action: Action, buffers: Sequence[torch.Tensor]) -> Any:
        assert action.kernel is not None
        inputs = [buffers[b] for b in action.inputs]
        output = buffers[action.buffer] if action.buffer >= 0 else None
        return self._made(action.kernel.name, action.ranges, inputs, output)

    def _made(self, symbol: str, ranges: Any, inputs: list[torch.Tensor], output: torch.Tensor | None) -> Any:
        count = len(by_hand.OPERANDS[symbol])
        segments = [
            self.runtime.Segment(
                r.parameter, r.first, r.elements,
                [self.runtime.Operand("buffer", self.slot, OFFSETS[r.parameter] + r.first)] * count,
            )
            for r in ranges
        ]  # fmt: skip
        return self.made.call(symbol, f"relaxc::{symbol}/bucket0", segments, inputs, output)


def slot_of(rank: int, iteration: int = 0) -> torch.Tensor:
    return torch.arange(ELEMENTS, dtype=torch.float32) * (rank + 1) + iteration


def exchanged(rank: int, workers: int, exchange: ExchangePlan, kinds: tuple[str, str]) -> dict[str, Any]:
    made, runtime = operations()
    transfer = by_hand.transfer(exchange, *kinds)
    schedule = schedule_transfer(transfer, MEMBERS, 0, workers, rank, PIECE_BYTES)
    slot = torch.zeros(ELEMENTS)
    bucket = Bucket(made, runtime, transfer, schedule, slot)
    job = made.job(bucket.pieces)
    results = []
    for iteration in range(3):
        made.free(job)
        slot.copy_(slot_of(rank, iteration))
        made.run(bucket.encodes, iteration, [])
        made.start(job, iteration)
        made.wait(job)
        assert made.done(job)
        made.run(bucket.decodes, iteration, [])
        results.append(slot.clone())
    made.drain()
    counters = made.counters()
    made.stop()
    return {"results": results, "counters": counters, "sent": schedule.sent_bytes, "pieces": len(bucket.pieces)}


MEAN = by_hand.exchange(codec=by_hand.EXACT)
CASES = {
    "all": (MEAN, ("slot", "slot")),
    "all by fragments": (MEAN, ("code", "code")),
    "all, lands in a slot": (MEAN, ("code", "slot")),
    "ring": (by_hand.exchange(codec=by_hand.EXACT, route="ring"), ("slot", "slot")),
    "sum of codes": (by_hand.exchange("sum", by_hand.EXACT, coded=True), ("slot", "slot")),
    "sum of codes by fragments": (by_hand.exchange("sum", by_hand.EXACT, coded=True), ("code", "code")),
    "dense": (by_hand.exchange("sum"), ("slot", "slot")),
}


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("case", CASES)
def test_exchanges(pool: Pool, case: str, workers: int) -> None:
    exchange, kinds = CASES[case]
    for answer in pool.run(exchanged, workers, exchange, kinds):
        for iteration, result in enumerate(answer["results"]):
            total = sum((slot_of(rank, iteration).double() for rank in range(workers)), torch.zeros(()).double())
            expected = total / workers if exchange.kind == "mean" else total
            torch.testing.assert_close(result, expected.float(), rtol=1e-6, atol=0)
        assert answer["counters"]["bytes_sent"] == 3 * answer["sent"]
        assert answer["counters"]["exchanges"] == 3
        assert exchange.codec is None or answer["pieces"] > 2 or workers > 2


def mixed(rank: int, workers: int) -> list[torch.Tensor]:
    """Partners change: in even rounds the next worker speaks to the one before, in odd rounds the other way round."""
    made, runtime = operations()
    transfer = by_hand.transfer(by_hand.exchange("mix", by_hand.EXACT))
    slot = slot_of(rank)
    jobs = []
    for step in (1, -1):
        to, source = (rank + step) % workers, (rank - step) % workers
        schedule = schedule_transfer(
            transfer, MEMBERS, 0, workers, rank, PIECE_BYTES, targets=[to], sources=[source, rank]
        )
        jobs.append((made.job(Bucket(made, runtime, transfer, schedule, slot).pieces), source))
    results = []
    for round_ in range(6):
        job, source = jobs[round_ % 2]
        weights = [0.25 if peer == rank else 0.75 for peer in sorted({rank, source})] if workers > 1 else [1.0]
        made.start(job, round_, weights=weights)
        made.wait(job)
        results.append(slot.clone())
    made.drain()  # what has landed here may not have left for others
    made.stop()
    return results


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
def test_a_mix_whose_partners_change(pool: Pool, workers: int) -> None:
    answers = pool.run(mixed, workers)
    now = [slot_of(rank) for rank in range(workers)]
    for round_ in range(6):
        step = 1 if round_ % 2 == 0 else -1
        if workers > 1:
            now = [0.25 * now[rank] + 0.75 * now[(rank - step) % workers] for rank in range(workers)]
        for rank in range(workers):
            torch.testing.assert_close(answers[rank][round_], now[rank], rtol=1e-6, atol=0)


def held(rank: int, workers: int) -> tuple[bool, bool, list[torch.Tensor]]:
    """Buckets that are let go one by one, the second job behind the first."""
    made, runtime = operations()
    slots = [torch.full((5,), rank + 1.0 + 10 * b) for b in range(3)]
    job = made.job([runtime.Piece(b, sums=[slot]) for b, slot in enumerate(slots)])
    other = torch.ones(2)
    second = made.job([runtime.Piece(0, sums=[other])])
    made.start(job, 4, held=True)
    made.start(second, 4)
    made.ready(job, 0)
    with pytest.raises(RuntimeError, match="while bucket 1 is held"):
        made.wait(job, 0)
    made.ready(job, 1)
    time.sleep(0.1)
    before = made.done(job), made.done(second)
    made.ready(job, 2)
    made.wait(job, 0)
    made.wait(second)
    made.wait(job)
    made.drain()
    made.stop()
    return (*before, [*slots, other])


def test_a_held_job_waits_for_each_bucket(pool: Pool) -> None:
    for first, second, values in pool.run(held, 2):
        assert not first and not second
        assert [v[0].item() for v in values] == [3.0, 23.0, 43.0, 2.0]


def with_gaps(rank: int, _workers: int) -> list[float]:
    """Of the buckets 0 to 5 only 1 and 4 have something to exchange."""
    made, runtime = operations()
    slots = [torch.full((3,), rank + b * 10.0) for b in (1, 4)]
    job = made.job([runtime.Piece(b, sums=[slot]) for b, slot in zip((1, 4), slots, strict=True)])
    nothing = made.job([])
    for started in (job, nothing):
        made.start(started, 0, held=True)
        for bucket in (5, 4, 1):
            made.ready(started, bucket)
        for bucket in (0, 1, 4, 5, -1):
            made.wait(started, bucket)
    made.drain()
    made.stop()
    return [slot[0].item() for slot in slots]


def test_buckets_without_pieces(pool: Pool) -> None:
    assert pool.run(with_gaps, 2) == [[21.0, 81.0]] * 2


def operands(_rank: int, _workers: int) -> dict[str, Any]:
    made, runtime = operations()
    weight = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    ones = torch.ones(6)

    def add(target: str, source: str) -> Any:
        found = {
            "weight": runtime.Operand("weight", weight, written=target == "weight"),
            "gradient": runtime.Operand("gradient", weight, written=target == "gradient"),
            "ones": runtime.Operand("buffer", ones, 2),
            "out": runtime.Operand("buffer", out, 2),
        }
        return made.call("add", "relaxc::add/bucket3", [runtime.Segment(0, 2, 4, [found[target], found[source]])])

    out = torch.zeros(6)
    result: dict[str, Any] = {}
    step = add("weight", "ones")
    version = weight._version
    step.run(0, [0.5])
    result["first"], result["bumped"] = weight.detach().clone(), weight._version > version
    weight.data = torch.zeros(2, 3)
    step.run(0, [2.0])
    result["swapped"] = weight.detach().clone()
    add("out", "gradient").run(0, [1.0])
    result["absent"], result["still absent"] = out.clone(), weight.grad is None
    weight.grad = torch.arange(6.0).reshape(3, 2).t()
    add("out", "gradient").run(0, [1.0])
    result["strided"], result["order"] = out.clone(), weight.grad.stride()
    weight.grad = None
    add("gradient", "ones").run(0, [3.0])
    result["created"] = weight.grad
    weight.data = torch.zeros(2, 3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="replaced by a tensor of another"):
        step.run(0, [1.0])
    made.stop()
    return result


def test_operands(pool: Pool) -> None:
    (got,) = pool.run(operands, 1)
    assert got["first"].flatten().tolist() == [0, 1, 2.5, 3.5, 4.5, 5.5]
    assert got["bumped"]
    assert got["swapped"].flatten().tolist() == [0, 0, 2, 2, 2, 2]
    assert got["absent"].tolist() == [0] * 6 and got["still absent"]
    # the gradient as a matrix is [[0, 2, 4], [1, 3, 5]]
    assert got["strided"].tolist() == [0, 0, 4, 1, 3, 5] and got["order"] == (3, 1)
    assert got["created"].flatten().tolist() == [0, 0, 3, 3, 3, 3]


def told(rank: int, _workers: int) -> dict[str, Any]:
    """What kernels are told, and what a profiler sees."""
    made, runtime = operations()
    result: dict[str, Any] = {}
    for owner in (False, True):
        out = torch.zeros(9, dtype=torch.float64)
        segments = [
            runtime.Segment(5, 512, 3, [runtime.Operand("buffer", out)]),
            runtime.Segment(9, 0, 8, [runtime.Operand("buffer", out)]),
        ]
        call = made.call("tell", "relaxc::tell/bucket1", segments, place=6, owner=owner)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            made.run([call], 11, [])
        result["owner" if owner else "own"] = out.tolist()
    result["range"] = [e.key for e in profile.key_averages() if e.key.startswith("relaxc")]
    gather = made.call("gather", "relaxc::gather/bucket0", [], [torch.zeros(4, dtype=torch.uint8)])
    with pytest.raises(ValueError, match="2 weights for 1 messages"):
        gather.run(0, [], [0.5, 0.5])
    with pytest.raises(RuntimeError, match="no kernel nothing"):
        made.call("nothing", "", [])
    with pytest.raises(ValueError, match="order of their buckets"):
        made.job([runtime.Piece(1, sums=[torch.zeros(1)]), runtime.Piece(0, sums=[torch.zeros(1)])])
    made.stop()
    return result


def test_what_kernels_are_told(pool: Pool) -> None:
    for rank, got in enumerate(pool.run(told, 2)):
        for kind, key in (("own", message_key(SEED, 11, 6, rank)), ("owner", message_key(SEED, 11, 7, EVERYONE))):
            assert got[kind] == [int(key) >> 32, int(key) & 0xFFFFFFFF, 2, 5, 512, 3, 9, 0, 8]
        assert got["range"] == ["relaxc::tell/bucket1"]


def abandoned(rank: int, _workers: int) -> str:
    made, runtime = operations(timeout=2)
    job = made.job([runtime.Piece(3, [torch.zeros(4, dtype=torch.uint8)], [[action(runtime, rank)]])])
    if rank == 1:  # never starts
        try:
            made.wait(job)
            return "returned"
        finally:
            torch.distributed.barrier()
            made.stop()
    made.start(job, 12)
    try:
        made.wait(job)
    except ConnectionError as error:
        return str(error)
    finally:
        torch.distributed.barrier()
        made.stop()
    return "no error"


def action(runtime: ModuleType, rank: int) -> Any:
    return runtime.Action("receive", buffer=0, peer=1 - rank, tag=0)


def test_a_worker_that_takes_no_part_is_named(pool: Pool) -> None:
    first, second = pool.run(abandoned, 2)
    assert first.startswith("iteration 12 bucket 3 peer 1: ")
    assert second == "returned"


class Impatient(Watch):
    """Gives up once, as a signal would."""

    def on_wait(self, seconds: float) -> None:
        super().on_wait(seconds)
        if self.waits == 1:
            raise KeyboardInterrupt


def interrupted(rank: int, _workers: int) -> tuple[bool, float]:
    """What was waited for goes on."""
    made, runtime = operations(watch=Impatient())
    values = torch.ones(1)
    job = made.job([runtime.Piece(0, sums=[values])])
    seen = rank == 1
    if rank == 1:
        time.sleep(0.3)
    made.start(job, 0)
    try:
        made.wait(job)
    except KeyboardInterrupt:
        seen = True
    made.wait(job)
    made.drain()
    made.stop()
    with pytest.raises(RuntimeError, match="has ended"):
        made.start(job, 1)
    return seen, values.item()


def test_a_wait_can_be_interrupted(pool: Pool) -> None:
    assert pool.run(interrupted, 2) == [(True, 2.0), (True, 2.0)]


def forked(rank: int, _workers: int) -> int:
    """A child destroys its copy while the parent's thread is at work."""
    made, runtime = operations()
    values = torch.ones(1)
    job = made.job([runtime.Piece(0, sums=[values])])
    made.start(job, 0, held=True)
    child = os.fork()
    if child == 0:
        del made
        os._exit(0)
    _pid, status = os.waitpid(child, 0)
    made.ready(job, 0)
    made.wait(job)
    made.drain()
    made.stop()
    return status + int(values.item())


def test_a_forked_child_can_end(pool: Pool) -> None:
    assert pool.run(forked, 2) == [2, 2]
