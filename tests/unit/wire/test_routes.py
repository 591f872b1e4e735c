"""The moves of means are verified on symbols in program/verify.py; here what it does not see."""

from __future__ import annotations

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
    located,
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
