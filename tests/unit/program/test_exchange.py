"""One exchange: by definition and as messages to the same bits, and against arithmetic written out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest

from relaxc.program.codec import EXACT
from relaxc.program.evaluate import decode, encode, trusted
from relaxc.program.exchange import Code, Occurrence, Residuals, Row, encoding_keys, run_exchange
from relaxc.program.ir import Codec, Exchange, Read
from relaxc.program.messages import run_messages
from relaxc.topology.topology import Topology
from relaxc.topology.weights import weights
from relaxc.wire.layout import Layout
from relaxc.wire.parameters import Parameter
from relaxc.wire.routes import route_of

Array = np.ndarray[Any, Any]


def parameter(elements: int, dtype: str = "f64", number: int = 0) -> Parameter:
    return Parameter(number, "p", (elements,), dtype)


def drawn(elements: int, workers: int, dtype: Any = np.float64, seed: int = 0) -> list[Array]:
    draw = np.random.default_rng(seed)
    return [draw.standard_normal(elements).astype(dtype) for _ in range(workers)]


def exchange(
    kind: str, codec: Codec | None = None, feedback: str = "none", route: str = "all", topology: Topology | None = None
) -> Exchange:
    return Exchange(kind, Read("x"), codec, feedback, "" if kind in ("mix", "push") else route, topology, place=4)


def occurrence(
    e: Exchange, values: Any, p: Parameter, iteration: int = 0, residuals: Residuals | None = None, round_: int = 0
) -> Occurrence:
    n = len(values)
    rows: list[Row] | None = None
    if e.topology is not None:
        rows = [weights(e.topology, n, round_, 9, rank) for rank in range(n)]
    return Occurrence(e, values, residuals or Residuals.zeros(p, n), p, 9, iteration, rows)


def per(codec: Codec, unit: str) -> Codec:
    return Codec(codec.text, Layout(0, codec.layout.fields, unit), codec.steps, codec.receive, codec.dithers)


def coded(codec: Codec, values: list[Array], p: Parameter, iteration: int = 0) -> list[Code]:
    return [Code(codec, x, encode(codec, x, encoding_keys(9, iteration, 2, w, p))) for w, x in enumerate(values)]


CODECS = {
    "exact": codecs.cast("real"), "bf16": codecs.cast("bf16"), "minmax": codecs.minmax(4, 16),
    "dithered": codecs.minmax(2, 32, stochastic=True), "onebit": codecs.onebit(64),
    "ternary": codecs.ternary(), "chunk": per(codecs.minmax(8), "chunk"),
    "topk": codecs.topk(0.05), "randomk": codecs.randomk(30), "dct": codecs.dct(8, 5),
}  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["chain", "star"])
def test_a_relay_adds_up_everyone_as_old_as_the_path_is_long(name: str, workers: int) -> None:
    """As messages, by definition, and by the sum over all workers that both stand for."""
    e = Exchange("relay", Read("x"), EXACT, "none", "", Topology(name), place=4)
    p = parameter(30)
    held: list[list[dict[int, Array]]] = [[{} for _ in range(workers)] for _ in range(2)]
    history: list[list[Array]] = []
    for t in range(6):
        values = drawn(30, workers, seed=t)
        history.append(values)
        one, other = (
            run(replace(occurrence(e, values, p, t), held=h))
            for run, h in zip((run_exchange, run_messages), held, strict=True)
        )
        for i in range(workers):
            assert one[i].tobytes() == other[i].tobytes()
            apart = {j: abs(i - j) if name == "chain" else 1 + (0 not in (i, j)) for j in range(workers) if j != i}
            old = [history[t - d + 1][j] for j, d in apart.items() if t >= d - 1]
            np.testing.assert_allclose(one[i], sum(old, values[i]), rtol=1e-13, atol=1e-13)


UNEVEN = {
    1: Topology("exponential"),
    2: Topology("arrows", ((0, 1, 0.3), (1, 0, 0.9))),
    3: Topology("arrows", ((0, 1), (1, 2), (2, 0), (0, 2))),
    4: Topology("arrows", ((0, 1, 1.0), (1, 2, 0.5), (2, 3, 0.7), (3, 0, 0.1), (2, 0, 0.2))),
    6: Topology("arrows", ((0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3))),
}
FORMS = [
    *[("mean", c, f, r) for c in CODECS for f in ("none", "worker", "both") for r in ("all", "ring")],
    *[(kind, c, f, "gather") for c in CODECS for f in ("none", "worker") for kind in ("mean", "sum")],
    *[("sum", c, f, r) for c in ("minmax", "chunk") for f in ("none", "both") for r in ("all", "ring")],
    *[("mean", c, f, f"hierarchy(inner = {n})") for c in CODECS for f in ("none", "worker", "both") for n in (1, 2, 3)],
    *[("sum", c, f, "hierarchy(inner = 2)") for c in ("minmax", "chunk") for f in ("none", "worker", "both")],
    *[(k, c, f, "") for k in ("mix", "push") for c in (None, "minmax", "dithered", "modulo") for f in ("none", "worker")],
    *[("mix", "ternary", f, "") for f in ("none", "worker")],
]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
@pytest.mark.parametrize(("kind", "name", "feedback", "route"), FORMS)
def test_messages_and_definition_give_the_same_bits(
    kind: str, name: str, feedback: str, route: str, workers: int
) -> None:
    codec = codecs.modulo(8, 0.05) if name == "modulo" else CODECS.get(name)
    topology = Topology("ring") if kind == "mix" else UNEVEN[workers] if kind == "push" else None
    e = exchange(kind, codec, feedback, route, topology)
    if route and route_of(route).refusal(workers):
        return
    for elements, dtype in ((0, "f32"), (1, "f32"), (1100, "f32"), (700, "f64")):
        p = parameter(elements, dtype, number=3)
        by = [Residuals.zeros(p, workers) for _ in range(2)]
        for iteration in range(3):
            values = drawn(elements, workers, np.float64 if dtype == "f64" else np.float32, iteration)
            one = run_exchange(occurrence(e, values, p, iteration, by[0]))
            other = run_messages(occurrence(e, values, p, iteration, by[1]))
            assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
            assert one[0].dtype == values[0].dtype
        for left, right in zip([*by[0].worker, by[0].owner], [*by[1].worker, by[1].owner], strict=True):
            assert left.tobytes() == right.tobytes()


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
@pytest.mark.parametrize("feedback", ["none", "worker"])
@pytest.mark.parametrize("name", ["ring", "exponential", "star"])
def test_what_trips_is_sent_again(name: str, feedback: str, workers: int) -> None:
    """One worker is far away in some blocks, another in one element: as messages and by definition the same bits, and
    to a unit the mix of the values themselves."""
    unit, e = 0.05, exchange("mix", codecs.guarded(8, 0.05, 64), feedback, topology=Topology(name))
    for elements, dtype in ((1, "f32"), (500, "f32"), (333, "f64")):
        p = parameter(elements, dtype)
        values = drawn(elements, workers, np.float64 if dtype == "f64" else np.float32)
        values[0][64:200] += 40
        values[-1][-1] -= 1e5
        by = [Residuals.zeros(p, workers) for _ in range(2)]
        for iteration in range(3):
            one = run_exchange(occurrence(e, values, p, iteration, by[0]))
            other = run_messages(occurrence(e, values, p, iteration, by[1]))
            assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
            for rank, found in enumerate(one):
                row = weights(Topology(name), workers, 0, 9, rank)
                wanted = sum(weight * values[peer].astype(np.float64) for peer, weight in row)
                np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2.01 * unit)


@pytest.mark.parametrize("workers", [2, 3])
def test_the_sum_of_the_workers_stays_to_rounding(workers: int) -> None:
    """Three hundred rounds in which all move by the difference of two quantised values, one of them far away at times."""
    p, topology, draw = parameter(130), Topology("ring"), np.random.default_rng(5)
    x = drawn(130, workers)
    total, trips = sum(x), 0
    codec = codecs.guarded(8, 0.01, 64)
    for iteration in range(300):
        if iteration % 50 == 0:
            thrown = draw.standard_normal(130) * 30
            x[0], x[1] = x[0] + thrown, x[1] - thrown
        codes = coded(codec, x, p, iteration)
        trips += sum((~trusted(codec, c.message, y)).sum() for c in codes for y in x)
        heard = run_exchange(occurrence(exchange("mix", topology=topology), codes, p, iteration))
        x = [mine + (h - c.decoded()) for mine, h, c in zip(x, heard, codes, strict=True)]
    assert trips > 30
    np.testing.assert_allclose(sum(x), total, rtol=0, atol=1e-10)
    assert max(np.abs(mine - total / workers).max() for mine in x) < 1, "they came together"


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["mean", "sum", "mix"])
@pytest.mark.parametrize(
    "codec", [codecs.onebit(64), codecs.modulo(8, 0.05), codecs.minmax(4, 16, stochastic=True)], ids=str
)
def test_a_code_is_exchanged_as_it_is(codec: Codec, kind: str, workers: int) -> None:
    p = parameter(300)
    values = drawn(300, workers)
    topology = Topology("ring") if kind == "mix" else None
    e = exchange(kind, topology=topology)
    codes = coded(codec, values, p)
    one = run_exchange(occurrence(e, codes, p))
    other = run_messages(occurrence(e, codes, p))
    assert [x.tobytes() for x in one] == [x.tobytes() for x in other]
    for rank, found in enumerate(one):
        heard = [decode(codec, c.message, 300, np.float64, values[rank]) for c in codes]
        row = dict(weights(topology, workers, 0, 9, rank)) if topology else dict.fromkeys(range(workers), 1.0)
        wanted = sum(weight * heard[peer] for peer, weight in row.items()) / (workers if kind == "mean" else 1)
        np.testing.assert_allclose(found, wanted, rtol=1e-14, atol=1e-15)


@pytest.mark.parametrize("workers", [1, 2, 3, 5])
def test_an_uncompressed_mix_is_the_product_with_its_matrix(workers: int) -> None:
    values = drawn(40, workers)
    e = exchange("mix", topology=Topology("ring"))
    w = np.zeros((workers, workers))
    for i in range(workers):
        for j in {i, (i - 1) % workers, (i + 1) % workers}:
            w[i, j] = 1 / len({i, (i - 1) % workers, (i + 1) % workers})
    found = run_exchange(occurrence(e, values, parameter(40)))
    np.testing.assert_allclose(np.stack(found), w @ np.stack(values), rtol=1e-14, atol=1e-15)


def test_weights_are_rounded_once_and_terms_added_in_rank_order() -> None:
    """Rank 0 of a ring of 3, in f32: ((a/3 + b/3) + c/3), each third rounded to f32."""
    a, b, c = drawn(50, 3, np.float32)
    third = np.float32(1 / 3)
    found = run_exchange(occurrence(exchange("mix", topology=Topology("ring")), [a, b, c], parameter(50, "f32")))
    for x in found:
        assert x.tobytes() == ((a * third + b * third) + c * third).tobytes()


def test_a_mean_of_a_code_is_rounded_once() -> None:
    """onebit of onebit is another value, so a second rounding would show."""
    p, codec = parameter(64, "f32"), codecs.onebit(64)
    values = drawn(64, 3, np.float32)
    codes = coded(codec, values, p)
    signs = [np.where(x >= 0, 1, -1) for x in values]
    scales = [np.abs(x).mean() for x in values]
    wanted = sum(s * scale for s, scale in zip(signs, scales, strict=True)) / 3
    found = run_exchange(occurrence(exchange("mean"), codes, p))
    np.testing.assert_allclose(found[0], wanted, rtol=1e-6)
    assert len({x.tobytes() for x in found}) == 1


@pytest.mark.parametrize(("kind", "factor"), [("mean", 1 / 4), ("sum", 1.0)])
def test_without_a_codec_it_is_plain_arithmetic(kind: str, factor: float) -> None:
    values = drawn(10, 4)
    found = run_exchange(occurrence(exchange(kind), values, parameter(10)))
    wanted = (((values[0] + values[1]) + values[2]) + values[3]) * factor
    assert all(x.tobytes() == wanted.tobytes() for x in found)


def test_residuals_of_a_mix_make_up_for_what_was_lost() -> None:
    """Sent + residual = put in, over many rounds, for each worker."""
    p, codec = parameter(64), codecs.onebit(64)
    e = exchange("mix", codec, "worker", topology=Topology("complete"))
    residuals = Residuals.zeros(p, 2)
    received, contributed = np.zeros(64), np.zeros(64)
    for iteration in range(20):
        values = drawn(64, 2, seed=iteration)
        contributed += (values[0] + values[1]) / 2
        received += run_exchange(occurrence(e, values, p, iteration, residuals))[0]
    kept = (residuals.worker[0] + residuals.worker[1]) / 2
    np.testing.assert_allclose(received + kept, contributed, rtol=1e-12, atol=1e-12)
    assert not residuals.owner.any()


def test_what_is_not_finite_leaves_no_residual() -> None:
    p, codec = parameter(64), codecs.minmax(8, 32)
    values = drawn(64, 2)
    values[1][5] = np.nan
    residuals = Residuals.zeros(p, 2)
    found = run_exchange(occurrence(exchange("mean", codec, "both"), values, p, 0, residuals))
    assert np.isnan(found[0][:32]).all() and np.isfinite(found[0][32:]).all()
    assert all(np.isfinite(r).all() for r in [*residuals.worker, residuals.owner])
    assert residuals.worker[0][:32].any() and not residuals.worker[1][:32].any()


def test_near_needs_no_large_numbers() -> None:
    """Two workers near 1000 with a unit of 0.01 and 8 bits: within half a unit, and their sum stays."""
    p, codec = parameter(200), codecs.modulo(8, 0.01)
    values = [1000 + 0.1 * x for x in drawn(200, 2)]
    codes = coded(codec, values, p)
    mixed = run_exchange(occurrence(exchange("mix", topology=Topology("complete")), codes, p))
    moved = [v + m - c.decoded() for v, m, c in zip(values, mixed, codes, strict=True)]
    np.testing.assert_allclose(sum(moved), sum(values), rtol=1e-14)
    assert np.abs(moved[0] - sum(values) / 2).max() <= 0.01


@pytest.mark.parametrize("unit", ["tensor", "chunk"])
def test_a_tensor_or_a_share_is_one_block(unit: str) -> None:
    """1500 elements among 2: `per tensor` one worker owns all; `per chunk` the border is at 1024 (3 blocks of 512: 1, 2)."""
    codec = per(codecs.minmax(8), unit)
    x = drawn(1500, 1)[0]
    found = run_exchange(occurrence(exchange("mean", codec), [x, x], parameter(1500)))[0]
    cuts = [(0, 1500)] if unit == "tensor" else [(0, 512), (512, 1500)]
    for start, end in cuts:
        part = x[start:end]
        assert np.abs(found[start:end] - part).max() <= (part.max() - part.min()) / 255
        assert found[start:end].min() == pytest.approx(part.min(), rel=1e-6)
        assert found[start:end].max() == pytest.approx(part.max(), rel=1e-6)


# --- machines


def hierarchical(codec: Codec, feedback: str, inner: int) -> Exchange:
    return exchange("mean", codec, feedback, f"hierarchy(inner = {inner})")


@pytest.mark.parametrize("name", ["minmax", "dithered", "onebit"])
def test_a_machine_with_one_worker_is_that_worker(name: str) -> None:
    """Then a hierarchy is the route `all`, bit for bit."""
    p = parameter(1100, "f32", number=3)
    by = [Residuals.zeros(p, 4) for _ in range(2)]
    for iteration in range(3):
        values = drawn(1100, 4, np.float32, iteration)
        one = run_exchange(occurrence(exchange("mean", CODECS[name], "both"), values, p, iteration, by[0]))
        other = run_exchange(occurrence(hierarchical(CODECS[name], "both", 1), values, p, iteration, by[1]))
        assert one[0].tobytes() == other[0].tobytes()


def test_on_one_machine_nothing_is_lost() -> None:
    p, values = parameter(300), drawn(300, 4)
    residuals = Residuals.zeros(p, 4)
    found = run_exchange(occurrence(hierarchical(codecs.onebit(64), "both", 4), values, p, 0, residuals))
    wanted = (((values[0] + values[1]) + values[2]) + values[3]) * 0.25
    assert all(x.tobytes() == wanted.tobytes() for x in found)
    assert not residuals.owner.any() and not any(r.any() for r in residuals.worker)


def test_only_leaders_lose_and_only_of_what_they_lead() -> None:
    """4 workers on 2 machines, 4 blocks: worker w owns block w - 3 of parameter 3, and leads those of both owners with
    its number on a machine."""
    p, codec = parameter(256, number=3), codecs.onebit(64)
    values, residuals = drawn(256, 4), Residuals.zeros(p, 4)
    run_exchange(occurrence(hierarchical(codec, "worker", 2), values, p, 0, residuals))
    lost = [{block for block in range(4) if residuals.worker[w][64 * block : 64 * block + 64].any()} for w in range(4)]
    assert lost == [{1, 3}, {0, 2}, {1, 3}, {0, 2}]
    block = slice(64, 128)
    total = values[2][block] + values[3][block]
    kept = total - np.where(total >= 0, 1, -1) * np.abs(total).mean()
    np.testing.assert_allclose(residuals.worker[2][block], kept, atol=1e-6)  # the codec's scale is an f32


@pytest.mark.parametrize("feedback", ["worker", "both"])
def test_what_leaders_lose_they_add_next_time(feedback: str) -> None:
    """Received + kept = contributed, over many rounds, but for what owners lose with `worker`."""
    p, codec = parameter(256, number=3), codecs.onebit(64)
    residuals = Residuals.zeros(p, 6)
    received, contributed = np.zeros(256), np.zeros(256)
    for iteration in range(20):
        values = drawn(256, 6, seed=iteration)
        contributed += sum(values) / 6
        received += run_exchange(occurrence(hierarchical(codec, feedback, 2), values, p, iteration, residuals))[0]
    kept = sum(residuals.worker) / 6 + residuals.owner
    missing = np.abs(received + kept - contributed).max()
    assert (missing < 1e-12) == (feedback == "both")
