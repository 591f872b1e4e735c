"""The moves of means are verified on symbols in program/verify.py; here what it does not see."""

from __future__ import annotations

from collections import Counter

import pytest

from relaxc.wire.machines import hierarchy
from relaxc.wire.moves import Sent
from relaxc.wire.routes import (
    ROUTES,
    Message,
    Receive,
    Run,
    Send,
    gather_kernels,
    gather_phases,
    held_from,
    located,
    passed_to,
    relay_kernels,
    relay_phases,
    route_of,
)


@pytest.mark.parametrize("route", ROUTES.values(), ids=ROUTES)
def test_a_sum_is_a_mean_without_the_division(route):
    means, sums = route.kernels("both", "mean"), route.kernels("both", "sum")
    assert any(k.averages for k in means) and not any(k.averages for k in sums)
    assert [(k.name, k.inputs, k.residual, k.owner) for k in means] == [
        (k.name, k.inputs, k.residual, k.owner) for k in sums
    ]
    told = " ".join(route.story_of("sum", "at the end of an iteration, each worker"))
    assert told.startswith("at the end of an iteration") and "mean" not in told and "divides" not in told


def test_a_mix_is_weighted_and_a_mean_of_codes_divided():
    kernels = {kind: gather_kernels(kind, "none")[1] for kind in ("mix", "mean", "sum")}
    assert {kind: (k.weighted, k.averages) for kind, k in kernels.items()} == {
        "mix": (True, False), "mean": (False, True), "sum": (False, False),
    }  # fmt: skip
    assert gather_kernels("mix", "worker")[0].residual and not gather_kernels("mix", "none")[0].residual


def test_a_worker_hears_its_neighbours_in_rank_order_itself_among_them():
    out, back = gather_phases(2, (5, 0), (5, 1))
    own = Message(0, 0)
    assert out == (Run("contribute", 0, output=own), Send(own, 2, 5, 0), Send(own, 2, 1, 0))
    assert back == (
        Receive(own, 5, 5, 0), Receive(own, 0, 0, 0), Run("gather", 0, ((0, own), (2, own), (5, own))),
    )  # fmt: skip


def test_a_worker_without_neighbours_decodes_its_own():
    assert gather_phases(0, (), ()) == (
        (Run("contribute", 0, output=Message(0, 0)),),
        (Run("gather", 0, ((0, Message(0, 0)),)),),
    )


TREE = {0: [1], 1: [0, 2, 3], 2: [1], 3: [1, 4], 4: [3]}


def test_a_relay_hears_everyone_once_as_late_as_the_path_is_long():
    """On symbols: what a worker has collected are the (worker, iteration) that went into it."""
    distance = {
        (0, 1): 1,
        (0, 2): 2,
        (0, 3): 2,
        (0, 4): 3,
        (1, 2): 1,
        (1, 3): 1,
        (1, 4): 2,
        (2, 3): 2,
        (2, 4): 3,
        (3, 4): 1,
    }
    kernels = {k.name: k for k in relay_kernels()}
    held = {rank: {(rank, held_from(peer)): Counter() for peer in TREE[rank]} for rank in TREE}
    for t in range(5):
        phases = {rank: relay_phases(rank, TREE[rank]) for rank in TREE}
        under_way, results = {}, {rank: Counter({(rank, t): 1}) for rank in TREE}
        for number in range(2):
            for rank in TREE:
                for move in phases[rank][number]:
                    match move:
                        case Send():
                            under_way[rank, move.peer, move.leg] = move.message, held[rank][rank, move.message]
                        case Receive():
                            message, held[rank][move.made_by, move.message] = under_way.pop((move.peer, rank, move.leg))
                            assert message == move.message
                        case Run():
                            kernel = kernels[move.kernel]
                            assert (kernel.inputs == "none") == (not move.inputs)
                            total = sum((held[rank][key] for key in move.inputs), Counter())
                            total = total + Counter({(rank, t): 1}) if kernel.tensor else total
                            if kernel.decodes:
                                results[rank] = total
                            else:
                                held[rank][rank, move.output] = total
        assert not under_way
        for i in TREE:
            ages = {j: 0 if i == j else distance[min(i, j), max(i, j)] - 1 for j in TREE}
            assert results[i] == Counter({(j, t - age): 1 for j, age in ages.items() if t >= age})


def test_a_worker_alone_relays_nothing():
    assert relay_phases(0, ()) == ((), ())
    assert relay_phases(0, (3,))[0] == (Run("contribute", 0, (), passed_to(3)), Send(passed_to(3), 0, 3, 0))


def test_a_route_by_its_name():
    assert route_of("ring") is ROUTES["ring"]
    assert (route_of("hierarchy").inner, route_of("hierarchy(inner = 12)").inner) == (1, 12)
    assert located("hierarchy", 4) == "hierarchy(inner = 4)"
    assert [located(name, 4) for name in ("all", "hierarchy(inner = 2)")] == ["all", "hierarchy(inner = 2)"]
    with pytest.raises(KeyError):
        route_of("hierarchy(4)")


def test_machines_are_whole():
    assert hierarchy(2).refusal(6) is None and ROUTES["all"].refusal(5) is None
    assert hierarchy(4).refusal(6) == "6 workers are not a whole number of machines with 4 workers each"


@pytest.mark.parametrize(("workers", "inner"), [(4, 2), (6, 2), (6, 3), (8, 4)])
def test_what_crosses_is_a_share_of_the_machine(workers, inner):
    """Per chunk: inner - 1 numbers to its leader on each machine, a code from each other leader to the owner and one
    back, inner - 1 codes passed on by each leader."""
    machines = workers // inner
    assert hierarchy(inner).sends(workers) == {
        Sent(exact=True, across=False): workers * machines * (inner - 1),
        Sent(exact=False, across=True): workers * 2 * (machines - 1),
        Sent(exact=False, across=False): workers * machines * (inner - 1),
    }


def test_on_one_machine_no_code_is_sent():
    assert hierarchy(4).sends(4) == {Sent(exact=True, across=False): 4 * 2 * 3}
