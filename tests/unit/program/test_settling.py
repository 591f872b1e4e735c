"""Bounds on eigenvalues against closed forms, and every verdict against the body run by the interpreter's own rules on
many workers: does what they disagree about die out?"""

from __future__ import annotations

import numpy as np
import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.ir import Body, Encode, Let, flattened
from relaxc.program.lower import lower
from relaxc.program.settling import BELOW_ALL, Fate, fate, lost_for_good, lowest
from relaxc.topology.topology import Topology
from relaxc.topology.weights import matrix

D2 = "relax with d2"
PULLED = (
    "algorithm a(gamma = 0.4, n = 1) { step every n { weight += gamma * (mix(weight, ring) - weight) } }\nrelax with a"
)
DEEP = """algorithm a(gamma = 0.1) {
  state error = 0
  step
  let wanted = weight + error
  let code = encode(wanted, 1bit)
  error = wanted - decode(code)
  weight += gamma * (mix(code, ring) - decode(code))
}
relax with a"""
DCD = "relax with dcd_psgd { compress = 8bit }"
BALL = """algorithm a(memory = 0.9) {
  state velocity = 0
  step
  velocity = memory * velocity + mix(weight, ring) - weight
  weight += velocity
}
relax with a"""


def body(text: str) -> Body:
    """Without the checks, which refuse what grows."""
    return lower(pipeline.to_spec(Source("spec", text), {})).bodies[0]


@pytest.mark.parametrize(
    ("text", "above"),
    [
        (D2, -1 / 3),
        ("relax with dpsgd", -1),
        ("relax with dpsgd_atc", -1),
        ("relax with swarm_blocking", -1),
        ("relax with choco", BELOW_ALL),
        ("relax with choco { gamma = 1.25 }", 1 - 2 / 1.25),
        (f"{PULLED} {{ gamma = 1.5 }}", 1 - 2 / 1.5),
        (f"{PULLED} {{ gamma = 1.5, n = 7 }}", 1 - 2 / 1.5),
        (f"{PULLED} {{ gamma = 0.9 }}", BELOW_ALL),
        (f"{PULLED} {{ gamma = 0 }}", 1),
        (f"{PULLED} {{ gamma = -0.2 }}", 1),
        (BALL, BELOW_ALL),
        (DEEP, BELOW_ALL),
        ("relax with dcd_psgd", -1),
        ("relax gradients", None),
        ("relax with local_sgd", None),
        ("relax weights { every = 4, delay = 3 }", None),
    ],
)
def test_lowest(text: str, above: float | None) -> None:
    """A pull by gamma: |1 - gamma (1 - lambda)| < 1. D2: the roots of m^2 - 2 lambda m + lambda. A ball of memory b,
    pulled by k = 1 - lambda: m^2 - (1 + b - k) m + b, so k < 2 (1 + b)."""
    found = lowest(body(text))
    if above is None or above < -1:
        assert found == (max(above, BELOW_ALL) if above is not None else None)
    else:
        assert found == pytest.approx(above, abs=1e-4)


def d2_alone(eigenvalue: float) -> float:
    """The largest root of D2's own recurrence, written out."""
    return max(abs(np.roots([1, -2 * eigenvalue, eigenvalue])))


@pytest.mark.parametrize("n", range(2, 33))
@pytest.mark.parametrize("name", ["ring", "star", "complete", "chain"])
def test_d2_on_real_matrices(name: str, n: int) -> None:
    for value in np.linalg.eigvalsh(matrix(Topology(name), n, 0, 0))[:-1]:
        largest, found = d2_alone(value), fate(body(D2), float(value))
        if abs(largest - 1) > 1e-4:
            assert found is (Fate.GROWS if largest > 1 else Fate.SETTLES), value
        elif value < -0.33:
            assert found is Fate.STAYS


def run(w: np.ndarray, rounds: int, gamma: float) -> float:
    """CHOCO's recurrence without a codec, on numbers: what is left of a disagreement."""
    x = np.random.default_rng(0).normal(size=len(w))
    x -= x.mean()
    seen, around, first = np.zeros_like(x), np.zeros_like(x), np.abs(x).max()
    for _ in range(rounds):
        change = x - seen
        seen, around = seen + change, around + w @ change
        x = x + gamma * (around - seen)
    return float(np.abs(x).max() / first)


@pytest.mark.parametrize("gamma", [-0.1, 0.0, 0.3, 1.0, 1.4, 1.6, 2.5])
def test_choco_as_it_runs(gamma: float) -> None:
    """On a ring of 8, whose smallest eigenvalue is -1/3."""
    left = run(matrix(Topology("ring"), 8, 0, 0), 400, gamma)
    found = [fate(body(f"relax with choco {{ gamma = {gamma} }}"), v) for v in (-1 / 3, 0.8)]
    worst = max((f for f in found if f is not None), key=lambda f: f.value)
    assert worst is (Fate.SETTLES if left < 1e-3 else Fate.STAYS if left < 2 else Fate.GROWS)


def codes(made: Body) -> list[Encode]:
    return [s.value for s in flattened(made.statements) if isinstance(s, Let) and isinstance(s.value, Encode)]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        (DCD, True),
        ("relax with choco", False),
        (DEEP, False),
        ("relax weights { compress = 4bit, every = 3 }", False),
        (DEEP.replace("(mix(code, ring) - decode(code))", "(mix(code, ring) - weight)"), False),
        (DEEP.replace("(mix(code, ring) - decode(code))", "(mix(code, ring) - weight)").replace("+ error", ""), True),
    ],
)
def test_what_is_lost_for_good(text: str, lost: bool) -> None:
    """Without its memory DeepSqueeze keeps the sum over workers still: its mix and its decoded code lose the same."""
    made = body(text)
    assert [lost_for_good(made, code) for code in codes(made)] == [lost]


def grown(topology: Topology, workers: int) -> float:
    """D2's recurrence on numbers, without gradients: by how much what workers disagree about grows a round."""
    x = np.random.default_rng(1).normal(size=workers)
    x -= x.mean()
    fix, logarithm, rounds = np.zeros_like(x), 0.0, 500
    for r in range(rounds):
        before = x
        x = matrix(topology, workers, r, 1) @ (x + fix)
        fix = x - before
        size = float(np.linalg.norm(np.concatenate([x, fix])))
        if size < 1e-100:
            return 0.0
        x, fix, logarithm = x / size, fix / size, logarithm + np.log(size)
    return float(np.exp(logarithm / rounds))


@pytest.mark.parametrize("n", [6, 8, 12])
def test_what_rx0375_warns_of(n: int) -> None:
    """Each round of pairs is above D2's bound, and over many it grows; over lazy pairs it does not."""
    pairs = Topology("random_pairs")
    assert fate(body(D2), 0.0) is fate(body(D2), 0.9) is Fate.SETTLES
    assert grown(pairs, n) > 1.003
    assert grown(Topology("one_peer_exponential"), n) > 1.2
    assert grown(Topology("lazy", (pairs,)), n) < 0.99
    assert grown(Topology("lazy", (Topology("ring"),)), n) < 0.99
