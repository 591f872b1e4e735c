"""What an exchange costs, against closed forms and against what the schedule of all workers sends."""

from __future__ import annotations

import plans_by_hand as by_hand
import pytest

from relaxc.manifest import ExchangePlan
from relaxc.schedule.cost import Cost, exchange_cost, price_of, transfer_cost
from relaxc.schedule.network import Coding, Line, Network
from relaxc.schedule.transfers import schedule_transfer
from relaxc.topology.kinds import rows
from relaxc.topology.topology import from_plain
from relaxc.wire.parameters import Parameter

BYTES = Network(Line(0.0, 1.0))
"""On which a byte takes a second."""
LATENCY = Network(Line(1.0, 0.0))
ELEMENTS = 6 * 512
MEMBER = Parameter(0, "p", (ELEMENTS,), "f32")
CODE = ELEMENTS + 6 * 8
ODD = [Parameter(n, f"p{n}", (size,), "f32") for n, size in enumerate((1, 700, 512 * 9 + 3, 0, 2048))]


def counted(text: str) -> Network:
    """On which an element encoded takes a second, one decoded another, and each call a thousand."""
    return Network(Line(0.0, 0.0), codings={text: Coding(Line(1000.0, 1.0), Line(1000.0, 1.0))})


def coded(route: str = "all", kind: str = "mean", **given: object) -> ExchangePlan:
    return by_hand.exchange(kind, by_hand.MINMAX, route=route, **given)


def mix(topology: list[object]) -> ExchangePlan:
    return coded(kind="mix", topology=topology)


@pytest.mark.parametrize(
    ("exchange", "sent", "latencies"),
    [
        (by_hand.exchange(), 2 * 2 / 3 * 4 * ELEMENTS, 4),
        (coded("all"), 2 * 2 / 3 * CODE, 2),
        (coded("ring"), 2 * 2 / 3 * CODE, 4),
        (coded("gather"), 2 * CODE, 1),
        (mix(["ring", []]), 2 * CODE, 1),
        (mix(["random_pairs", []]), CODE, 1),
    ],
)
def test_the_link_of_three_workers(exchange: ExchangePlan, sent: float, latencies: int) -> None:
    assert exchange_cost(exchange, [MEMBER], 3, BYTES).link == pytest.approx(sent)
    assert exchange_cost(exchange, [MEMBER], 3, LATENCY).link == latencies


@pytest.mark.parametrize(
    ("exchange", "encode", "decode"),
    [
        # each encodes all and its own share's mean; decodes everyone's of its share, and all means
        (coded("all"), (4, 1 + 1 / 3), (4, 2)),
        # each encodes one chunk a hop; decodes one a hop but the first, and all means
        (coded("ring"), (3, 1), (5, 5 / 3)),
        (coded("gather"), (1, 1), (1, 3)),
        (mix(["random_pairs", []]), (1, 1), (1, 2)),
        (by_hand.exchange(), (0, 0), (0, 0)),
    ],
)
def test_the_kernels_of_three_workers(
    exchange: ExchangePlan, encode: tuple[int, float], decode: tuple[int, float]
) -> None:
    cost = exchange_cost(exchange, [MEMBER], 3, counted(by_hand.MINMAX.text))
    assert cost.encode == pytest.approx(1000 * encode[0] + encode[1] * ELEMENTS)
    assert cost.decode == pytest.approx(1000 * decode[0] + decode[1] * ELEMENTS)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("route", ["all", "ring", "gather"])
def test_bytes_are_those_of_the_schedule_of_all_workers(route: str, workers: int) -> None:
    transfer = by_hand.transfer(coded(route))
    sent = [schedule_transfer(transfer, ODD, 0, workers, rank, 1 << 12).sent_bytes for rank in range(workers)]
    assert transfer_cost(transfer, ODD, workers, BYTES).link * workers == pytest.approx(sum(sent))


@pytest.mark.parametrize("topology", [["ring", []], ["star", []], ["exponential", []]])
def test_a_mix_costs_what_its_busiest_worker_sends(topology: list[object]) -> None:
    workers, transfer = 5, by_hand.transfer(mix(topology))
    hears = [{peer for peer, _ in row} for row in rows(from_plain(topology), workers, 0, 0)]
    sent = [
        schedule_transfer(
            transfer, ODD, 0, workers, rank, 1 << 12, sources=sorted(hears[rank]),
            targets=[peer for peer in range(workers) if rank in hears[peer]],
        ).sent_bytes
        for rank in range(workers)
    ]  # fmt: skip
    assert transfer_cost(transfer, ODD, workers, BYTES).link == pytest.approx(max(sent))


def test_a_hierarchy_sends_codes_across_and_numbers_within() -> None:
    """Two machines of two. Within, each gives the other half of its numbers and passes on its half of the result's code;
    across, each sends its leader's share of the code and of the result, a quarter, over a link that two share."""
    exchange = coded("hierarchy(inner = 2)")
    across = Network(Line(0.0, 1.0), per_machine=2, inner=Line(0.0, 0.0))
    within = Network(Line(0.0, 0.0), per_machine=2, inner=Line(0.0, 1.0))
    assert exchange_cost(exchange, [MEMBER], 4, across).link == pytest.approx(2 * 2 * CODE / 4, rel=0.02)
    assert exchange_cost(exchange, [MEMBER], 4, within).link == pytest.approx((4 * ELEMENTS + CODE) / 2, rel=0.02)


def test_workers_of_a_machine_share_its_link() -> None:
    """Of four on two machines each tells two others across."""
    near = Network(Line(0.0, 1.0), per_machine=2, inner=Line(0.0, 0.0))
    assert exchange_cost(coded("gather"), [MEMBER], 4, near).link == 2 * 2 * CODE
    assert exchange_cost(coded("all"), [MEMBER], 4, near).link == pytest.approx(2 * 2 * 2 * CODE / 4)
    assert exchange_cost(mix(["ring", []]), [MEMBER], 4, near).link == 2 * CODE


def test_a_slow_pair_slows_all() -> None:
    slow = Network(Line(0.0, 1.0), pairs={(1, 2): Line(5.0, 10.0)})
    assert exchange_cost(coded("gather"), [MEMBER], 3, slow).link == 5 + 11 * CODE
    assert exchange_cost(coded("ring"), [MEMBER], 3, slow).link == pytest.approx(4 * 5 + 4 / 3 * 10 * CODE)
    assert exchange_cost(by_hand.exchange(), [MEMBER], 3, slow).link == pytest.approx(4 * 5 + 4 / 3 * 10 * 4 * ELEMENTS)


def test_a_measured_all_reduce_counts_for_its_number_of_workers() -> None:
    measured = Network(Line(0.0, 1.0), workers=3, reduce=Line(7.0, 0.5))
    assert exchange_cost(by_hand.exchange(), [MEMBER], 3, measured).link == 7 + 2 * ELEMENTS
    assert exchange_cost(by_hand.exchange(), [MEMBER], 2, measured).link == 4 * ELEMENTS


def test_slots_are_sent_in_the_type_of_arithmetic_and_gradients_in_their_own() -> None:
    half = [Parameter(0, "p", (100,), "bf16")]
    assert exchange_cost(by_hand.exchange(), half, 2, BYTES).link == 200
    assert transfer_cost(by_hand.transfer(by_hand.exchange()), half, 2, BYTES).link == 400


def test_low_rank_is_two_sums_of_factors() -> None:
    matrix = [Parameter(0, "p", (10, 30), "f32")]
    exchange = by_hand.exchange(rank=2)
    assert exchange_cost(exchange, matrix, 2, BYTES).link == 4 * 2 * (10 + 30)
    assert exchange_cost(exchange, matrix, 2, LATENCY).link == 4


@pytest.mark.parametrize("exchange", [by_hand.exchange(), coded(), coded("ring"), coded("gather")])
def test_one_worker_has_no_link(exchange: ExchangePlan) -> None:
    assert exchange_cost(exchange, [MEMBER], 1, Network(Line(1.0, 1.0))).link == 0


def test_costs_add_up_over_parameters() -> None:
    """What the dynamic programme rests on."""
    price = price_of(coded(), 3, Network(Line(3.0, 1.0)))
    parts = [price.of([p]) for p in ODD]
    whole = price.of(ODD)
    assert whole.link == pytest.approx(sum(p.link for p in parts) - (len(ODD) - 1) * price.fixed.link)
    assert Cost(1, 2, 3) + Cost(4, 5, 6) == Cost(5, 7, 9)


def test_a_codec_that_was_not_measured_costs_by_its_bytes() -> None:
    narrow, wide = (
        exchange_cost(by_hand.exchange(codec=c), [MEMBER], 3, BYTES) for c in (by_hand.MINMAX, by_hand.EXACT)
    )
    assert 0 < narrow.encode < wide.encode
