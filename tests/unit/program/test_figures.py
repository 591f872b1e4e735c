"""Bytes and memory by hand."""

from __future__ import annotations

import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.figures import (
    MemoryBytes,
    memory_bytes,
    native_gradient,
    per_iteration,
    roundings,
    sent_bytes,
    sent_in,
    story,
    travelled,
)
from relaxc.program.ir import Body, Program

CODE = 1_000_000 + 8 * -(-1_000_000 // 512)
"""8bit: a byte an element, 8 for each block."""


def body_of(text: str) -> Body:
    (body,) = pipeline.to_program(pipeline.to_spec(Source("spec", text), {})).bodies
    return body


def algorithm(statements: str) -> Body:
    return body_of(f"algorithm a() {{ {statements} }}\nrelax with a")


def memory(body: Body) -> MemoryBytes:
    (paths,) = pipeline.to_paths(Program((body,))).bodies
    return memory_bytes(body, paths, 4)


def test_a_late_coded_gradient() -> None:
    body = body_of("relax gradients { compress = 8bit, delay = 1 }")
    (sent,) = sent_in(body, "")
    assert sent_bytes(sent, 4) == 1.5 * CODE and sent_bytes(sent, 1) == 0
    assert roundings(sent, 4) == 2 and sent.exchange is native_gradient(body)
    found = memory(body)
    assert found.messages == round((3 * 4 - 1) / 4 * CODE)  # 4 made, 3 arrived, 1 result made, 3 arrived
    assert (found.states, found.residuals, found.waiting) == (0, 4_000_000 + 1_000_000, 8_000_000)
    assert found.total == found.messages + 13_000_000


@pytest.mark.parametrize(
    ("statements", "workers", "sent"),
    [
        ("grad = mean(grad) step", 4, 1.5 * 4e6),
        ("step every 8 { weight = mean(weight) }", 4, 1.5 * 4e6 / 8),
        ("step every 2 { every 5 { weight = mean(weight) } }", 2, 4e6 / 10),
        ("step every geometric(4) { weight = mix(weight, ring) }", 4, 2 * 4e6 / 4),
        ("step weight = mix(weight, ring)", 2, 4e6),
        ("step weight = mix(weight, chain)", 4, 6 / 4 * 4e6),
        ("step weight = mix(weight, complete)", 5, 4 * 4e6),
        ("step weight = mix(weight, one_peer_exponential)", 8, 4e6),
        ("step weight = mix(weight, random_pairs)", 4, 4e6),
        ("step weight = mix(weight, random_pairs)", 5, 4 / 5 * 4e6),
        ("step let q = encode(weight, 8bit) weight += mix(q, ring) - decode(q)", 4, 2 * CODE),
        ("step let q = encode(weight, 8bit) weight += mean(q) - decode(q)", 4, 3 * CODE),
        ("grad = sum(grad, compress = 8bit, route = ring) step", 4, 1.5 * CODE),
        ("grad = mean(grad, compress = 8bit, route = gather) step", 4, 3 * CODE),
        ("grad = mean(grad, compress = topk(1%)) step", 5, 4 * 80_000),
        ("grad = mean(grad, compress = randomk(1%)) step", 5, 1.6 * 40_000),
        ("grad = mean(grad, compress = dct(50, 25)) step", 3, 2 * 400 * 200),
        ("step every 4 { let d = mean(weight) - weight after 2 { weight += d } }", 2, 4e6 / 4),
    ],
)
def test_bytes_per_iteration(statements: str, workers: int, sent: float) -> None:
    assert per_iteration(algorithm(statements), "", workers) == (round(sent), True)


def test_phases_send_different_things() -> None:
    body = algorithm("phase a for 9 { grad = mean(grad) } phase b { grad = mean(grad, compress = 8bit) } step")
    assert per_iteration(body, "a", 4) == (6_000_000, True)
    assert per_iteration(body, "b", 4) == (round(1.5 * CODE), True)


def test_a_period_that_is_computed_counts_as_each_iteration() -> None:
    body = algorithm("step every min(2 ^ t, 8) { weight = mean(weight) }")
    assert per_iteration(body, "", 2) == (4_000_000, False)


def test_memory_of_an_algorithm() -> None:
    body = body_of("relax with choco { topology = ring, compress = 8bit }")
    found = memory(body)
    assert found.states == 8_000_000 and found.residuals == 0
    assert found.waiting % 4_000_000 == 0
    assert found.messages == 3 * CODE  # its own, and two neighbours'
    body = algorithm("state n = 0 step n += 1 weight = mix(weight, ring, compress = 8bit, feedback = worker) + 0 * n")
    assert memory(body).states == 0 and memory(body).residuals == 4_000_000


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ("grad = mean(grad) step", "as soon as backward has made its gradients"),
        (
            "step weight = mean(weight)",
            "after the optimiser's step the mean over all workers is taken by an all-reduce",
        ),
        ("weight = mix(weight, ring) step", "before the optimiser's step each worker sends its own numbers"),
        ("grad = 2 * mean(grad) step", "at the end of backward the mean"),
        ("weight -= lr * mean(grad)", "in optimizer.step() the mean"),
        ("step weight = mean(weight, compress = 8bit)", "after the optimiser's step each worker encodes it (minmax("),
    ],
)
def test_stories(statements: str, told: str) -> None:
    body = algorithm(statements)
    (sent,) = sent_in(body, "")
    assert told in " ".join(story(body, sent))


@pytest.mark.parametrize(("workers", "inner"), [(4, 2), (8, 4), (12, 3)])
def test_a_hierarchy_within_and_across(workers: int, inner: int) -> None:
    """Of a million elements: across, a leader sends a share of the code to each other machine and gets one back;
    within, numbers to leaders and codes from them."""
    body = body_of(f"relax gradients {{ route = hierarchy(inner = {inner}), compress = 8bit, feedback = worker }}")
    (sent,), machines = sent_in(body, ""), workers // inner
    found = travelled(sent, workers)
    assert found[True] == pytest.approx(2 * (machines - 1) / workers * CODE)
    assert found[False] == pytest.approx((inner - 1) * machines / workers * (4e6 + CODE))
    assert sent_bytes(sent, workers) == pytest.approx(sum(found.values()))
    assert roundings(sent, workers) == 2 and roundings(sent, inner) == 0
    assert story(body, sent)[-1] == f"a machine has {inner} workers"


def test_a_hierarchy_that_leaves_machines_open_is_told_of_two() -> None:
    (sent,) = sent_in(body_of("relax gradients { route = hierarchy, compress = 8bit }"), "")
    assert travelled(sent, 4)[True] == pytest.approx(2 / 4 * CODE)
    assert travelled(sent, 3) == travelled(sent_in(body_of("relax gradients { compress = 8bit }"), "")[0], 3)
