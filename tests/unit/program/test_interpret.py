"""Whole programs against direct numpy implementations of the published algorithms, and the rules of evaluation one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.evaluate import round_to
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.program.lower import lower
from relaxc.topology.topology import Topology
from relaxc.topology.weights import matrix, weights
from relaxc.wire.draws import geometric
from relaxc.wire.parameters import Parameter

Array = np.ndarray[Any, Any]
SEED, RATE, SIZE = 11, 0.1, 33


def program(text: str) -> Program:
    return lower(pipeline.to_spec(Source("spec.relax", text), {}))


def algorithm(body: str, parameters: str = "") -> Program:
    return program(f"algorithm a({parameters}) {{ {body} }} relax with a")


class Momentum:
    """SGD; its buffers and settings can be read by programs."""

    def __init__(self, momentum: float = 0.0, rate: Callable[[int], float] = lambda t: RATE) -> None:
        self.momentum, self.rate, self.t = momentum, rate, 0
        self.buffers: dict[tuple[int, int], Array] = {}
        self.steps: list[tuple[int, int]] = []

    def step(self, worker: int, parameter: Parameter, weight: Array, grad: Array) -> Array:
        self.steps.append((worker, parameter.number))
        buffer = self.momentum * self.state(worker, parameter, "momentum_buffer") + grad
        self.buffers[worker, parameter.number] = buffer
        return weight - self.rate(self.t) * buffer

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": self.rate(self.t), "momentum": self.momentum, "weight_decay": 0.25}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> Array:
        return self.buffers.get((worker, parameter.number), np.zeros(parameter.elements))


def one(dtype: str = "f64", elements: int = SIZE) -> list[Parameter]:
    return [Parameter(0, "p", (elements,), dtype)]


def start(elements: int = SIZE, seed: int = 5) -> Array:
    return np.random.default_rng(seed).standard_normal(elements)


def drawn(t: int, worker: int, elements: int = SIZE) -> Array:
    return np.random.default_rng([t, worker]).standard_normal(elements)


def trained(
    text: Program, workers: int, iterations: int, rule: Momentum | None = None, messages: bool = False
) -> Iterator[Interpreter]:
    """The interpreter after each iteration; gradients are drawn, plus a tenth of the weight that they are taken at."""
    rule = rule or Momentum()
    interpreter = Interpreter(text, one(), workers, SEED, [start()], rule, messages)
    for t in range(iterations):
        rule.t = t
        interpreter.iterate([[drawn(t, w) + 0.1 * interpreter.weights[w][0]] for w in range(workers)])
        yield interpreter


Rule = Callable[[int], Iterator[Array]]
"""For a number of workers, the weights after each iteration, of shape (workers, elements)."""


def gradients(t: int, x: Array) -> Array:
    return np.stack([drawn(t, w) + 0.1 * x[w] for w in range(len(x))])


def agrees(text: Program, reference: Rule, workers: int, iterations: int = 24, momentum: float = 0.0,
           rate: Callable[[int], float] = lambda t: RATE) -> None:  # fmt: skip
    rules = [Momentum(momentum, rate), Momentum(momentum, rate)]
    runs = zip(
        trained(text, workers, iterations, rules[0]),
        trained(text, workers, iterations, rules[1], messages=True),
        reference(workers),
        strict=False,
    )
    count = 0
    for by_definition, by_messages, wanted in runs:
        found = np.stack([w[0] for w in by_definition.weights])
        assert found.tobytes() == np.stack([w[0] for w in by_messages.weights]).tobytes()
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12, err_msg=f"iteration {count}")
        count += 1
    assert count == iterations


def signs(x: Array) -> Array:
    """The codec 1bit of one block."""
    return float(np.float32(np.abs(x).mean())) * np.where(x >= 0, 1.0, -1.0)


class Owner:
    """A mean with 1bit and feedback on both sides, of tensors of one block."""

    def __init__(self, workers: int) -> None:
        self.lost, self.owner = np.zeros((workers, SIZE)), np.zeros(SIZE)

    def mean(self, values: Array) -> Array:
        wanted = values + self.lost
        sent = np.stack([signs(v) for v in wanted])
        self.lost = wanted - sent
        total = sent.mean(axis=0) + self.owner
        result = signs(total)
        self.owner = total - result
        return result


WORKERS = pytest.mark.parametrize("workers", [1, 2, 3, 4])


# --- algorithms


CHOCO = """
  state seen = 0
  state around = 0
  step
  let change = encode(weight - seen, 1bit)
  seen   += decode(change)
  around += mix(change, ring)
  weight += 0.4 * (around - seen)
"""


def choco(workers: int) -> Iterator[Array]:
    """With replicas of all neighbours, as in the paper."""
    w = matrix(Topology("ring"), workers, 0, 0)
    x, replicas = np.stack([start()] * workers), np.zeros((workers, SIZE))
    t = 0
    while True:
        x = x - RATE * gradients(t, x)
        replicas = replicas + np.stack([signs(x[i] - replicas[i]) for i in range(workers)])
        x = x + 0.4 * (w @ replicas - replicas)
        t += 1
        yield x


@WORKERS
def test_choco(workers: int) -> None:
    agrees(algorithm(CHOCO), choco, workers)


DILOCO = """
  state anchor = weight
  state velocity = 0
  step
  every 4 {
    let drift = mean(anchor - weight)
    velocity = 0.9 * velocity + drift
    anchor  -= 0.7 * (drift + 0.9 * velocity)
    weight   = anchor
  }
"""


def diloco(workers: int) -> Iterator[Array]:
    x, buffers = np.stack([start()] * workers), np.zeros((workers, SIZE))
    anchor, velocity = start(), np.zeros(SIZE)
    t = 0
    while True:
        buffers = 0.5 * buffers + gradients(t, x)
        x = x - RATE * buffers
        t += 1
        if t % 4 == 0:
            drift = anchor - x.mean(axis=0)
            velocity = 0.9 * velocity + drift
            anchor = anchor - 0.7 * drift - 0.63 * velocity
            x = np.stack([anchor] * workers)
        yield x


@WORKERS
def test_diloco(workers: int) -> None:
    agrees(algorithm(DILOCO), diloco, workers, momentum=0.5)


D2 = """
  state fix  = 0
  let before = weight
  step
  let update = weight - before
  weight = mix(weight + fix, lazy(ring))
  fix    = weight - before - update
"""


def d2(workers: int) -> Iterator[Array]:
    """x_{t+1} = W (2 x_t - x_{t-1} - lr g_t + lr g_{t-1}), and x_1 = W (x_0 - lr g_0)."""
    ring = matrix(Topology("ring"), workers, 0, 0)
    w = (np.eye(workers) + ring) / 2
    x = np.stack([start()] * workers)
    g = gradients(0, x)
    before, x, last = x, w @ (x - RATE * g), g
    yield x
    t = 1
    while True:
        g = gradients(t, x)
        before, x, last = x, w @ (2 * x - before - RATE * g + RATE * last), g
        t += 1
        yield x


@WORKERS
def test_d2(workers: int) -> None:
    agrees(algorithm(D2), d2, workers)


TRACKING = """
  state track = 0
  state last  = 0
  track = mix(track, ring) + grad - last
  last  = grad
  grad  = track
  step
  weight = mix(weight, ring)
"""


def gradient_tracking(workers: int) -> Iterator[Array]:
    """The mean of the trackers is the mean of the gradients."""
    w = matrix(Topology("ring"), workers, 0, 0)
    x = np.stack([start()] * workers)
    y = last = np.zeros((workers, SIZE))
    t = 0
    while True:
        g = gradients(t, x)
        y, last = w @ y + g - last, g
        np.testing.assert_allclose(y.mean(axis=0), g.mean(axis=0), atol=1e-12)
        x = w @ (x - RATE * y)
        t += 1
        yield x


@WORKERS
def test_gradient_tracking(workers: int) -> None:
    agrees(algorithm(TRACKING), gradient_tracking, workers)


ONE_BIT_ADAM = """
  state m = 0
  state v = 0
  phase dense for 5 { grad = mean(grad)  v = 0.999 * v + (1 - 0.999) * grad ^ 2  m = 0.9 * m + (1 - 0.9) * grad }
  phase compressed  { m = mean(0.9 * m + (1 - 0.9) * grad, compress = 1bit, feedback = both) }
  weight -= lr * m / (sqrt(v) + 1e-8)
"""


def falling(t: int) -> float:
    return RATE / (t + 1)


def one_bit_adam(workers: int) -> Iterator[Array]:
    x = np.stack([start()] * workers)
    m, v, owner = np.zeros(SIZE), np.zeros(SIZE), Owner(workers)
    t = 0
    while True:
        g = gradients(t, x)
        if t < 5:
            m, v = 0.9 * m + 0.1 * g.mean(axis=0), 0.999 * v + 0.001 * g.mean(axis=0) ** 2
        else:
            m = owner.mean(0.9 * m + 0.1 * g)
        x = x - falling(t) * m / (np.sqrt(v) + 1e-8)
        t += 1
        yield x


@WORKERS
def test_one_bit_adam(workers: int) -> None:
    agrees(algorithm(ONE_BIT_ADAM), one_bit_adam, workers, rate=falling)


ZERO_ONE_ADAM = """
  state m = 0
  state v = 0
  state moved  = 0
  state rates  = 0
  state anchor = weight
  state gap    = 1
  state rounds = 0
  let fresh = grad
  m       = 0.9 * m + (1 - 0.9) * fresh
  weight -= lr * m / sqrt(v + 1e-8)
  moved  += lr * m
  rates  += lr
  every where(t < 4, 1, min(8, 2 ^ floor((t - 4) / 6))) {
    let total = mean(moved, compress = 1bit, feedback = both)
    m       = total / rates
    anchor -= total / sqrt(v + 1e-8)
    weight  = anchor
    moved   = 0
    rates   = 0
  }
  every gap {
    v       = 0.999 * v + (1 - 0.999) * mean(fresh) ^ 2
    rounds += 1
    gap     = 2 ^ floor(rounds / 3)
  }
"""


def zero_one_adam(workers: int) -> Iterator[Array]:
    x = np.stack([start()] * workers)
    m, moved = np.zeros((workers, SIZE)), np.zeros((workers, SIZE))
    v, anchor, owner = np.zeros(SIZE), start(), Owner(workers)
    rates, gap, rounds = 0.0, 1, 0
    since, since_v = 0, 0
    t = 0
    while True:
        g, rate = gradients(t, x), falling(t)
        m = 0.9 * m + 0.1 * g
        x = x - rate * m / np.sqrt(v + 1e-8)
        moved, rates = moved + rate * m, rates + rate
        since += 1
        if since >= (1 if t < 4 else min(8, 2 ** ((t - 4) // 6))):
            since = 0
            total = owner.mean(moved)
            m = np.stack([total / rates] * workers)
            anchor = anchor - total / np.sqrt(v + 1e-8)
            x = np.stack([anchor] * workers)
            moved, rates = np.zeros((workers, SIZE)), 0.0
        since_v += 1
        if since_v >= gap:
            since_v = 0
            v = 0.999 * v + 0.001 * g.mean(axis=0) ** 2
            rounds += 1
            gap = 2 ** (rounds // 3)
        t += 1
        yield x


@WORKERS
def test_zero_one_adam(workers: int) -> None:
    agrees(algorithm(ZERO_ONE_ADAM), zero_one_adam, workers, rate=falling)


STREAMING = """
  state anchor   = weight
  state velocity = 0
  step
  every staggered(6) {
    let drift = mean(anchor - weight)
    after 2 {
      velocity = 0.9 * velocity + drift
      anchor  -= 0.7 * (drift + 0.9 * velocity)
      weight   = 0.5 * weight + (1 - 0.5) * anchor
    }
  }
"""


class Streaming:
    """One parameter of the three: `head` is where its count starts."""

    def __init__(self, workers: int, head: int) -> None:
        self.x = np.stack([start()] * workers)
        self.anchor, self.velocity, self.count = start(), np.zeros(SIZE), head
        self.under_way: list[tuple[int, Array]] = []

    def iterate(self, t: int, grads: Array) -> None:
        self.x = self.x - RATE * grads
        self.count += 1
        if self.count == 6:
            self.count = 0
            self.under_way.append((t + 2, self.anchor - self.x.mean(axis=0)))
        if self.under_way and self.under_way[0][0] == t:
            drift = self.under_way.pop(0)[1]
            self.velocity = 0.9 * self.velocity + drift
            self.anchor = self.anchor - 0.7 * (drift + 0.9 * self.velocity)
            self.x = 0.5 * self.x + 0.5 * self.anchor


@WORKERS
def test_streaming_diloco_lands_late_and_staggered(workers: int) -> None:
    parameters = [Parameter(n, f"p{n}", (SIZE,), "f64") for n in range(3)]
    interpreter = Interpreter(algorithm(STREAMING), parameters, workers, SEED, [start()] * 3, Momentum())
    wanted = [Streaming(workers, head) for head in (0, 2, 4)]
    landed = set()
    for t in range(30):
        grads = [[drawn(t, 10 * w + n) for n in range(3)] for w in range(workers)]
        interpreter.iterate(grads)
        for n, one_of_them in enumerate(wanted):
            before = one_of_them.anchor
            one_of_them.iterate(t, np.stack([g[n] for g in grads]))
            found = np.stack([w[n] for w in interpreter.weights])
            np.testing.assert_allclose(found, one_of_them.x, rtol=1e-12, atol=1e-12)
            if one_of_them.anchor is not before:
                landed.add((n, t))
    assert {t for n, t in landed if n == 1} == {5, 11, 17, 23, 29}


SWARM = "step  every geometric(3) { weight = mix(weight, random_pairs) }"


@pytest.mark.parametrize("workers", [2, 4])
def test_random_pairs_at_random_moments(workers: int) -> None:
    """Pairs and moments are draws of the seed; the round counts runs of the block."""

    def swarm(workers: int) -> Iterator[Array]:
        x = np.stack([start()] * workers)
        t = met = 0
        while True:
            x = x - RATE * gradients(t, x)
            if geometric(SEED, 1, t, 3):
                x = matrix(Topology("random_pairs"), workers, met, SEED) @ x
                met += 1
            t += 1
            yield x

    agrees(algorithm(SWARM), swarm, workers)


# --- rules of evaluation


def run(text: Program, iterations: int, workers: int) -> Interpreter:
    *_, last = trained(text, workers, iterations)
    return last


def ones(interpreter: Interpreter, grads: list[Any]) -> list[list[Array | None]]:
    """An iteration with these gradients, a number for each worker, None for none."""
    p = interpreter.parameters[0]
    return interpreter.iterate([[None if g is None else np.full(p.elements, float(g))] for g in grads])


def simple(text: Program, workers: int = 2, dtype: str = "f64", rule: Momentum | None = None) -> Interpreter:
    return Interpreter(text, one(dtype, 2), workers, SEED, [np.array([1.0, 2.0])], rule or Momentum())


def test_later_statements_see_earlier_ones_and_lets_never_change() -> None:
    i = simple(algorithm("state s = 1  let a = s  s = s + 2  s = s * a + s  weight = s"))
    ones(i, [0, 0])
    assert i.states(0, 0)["s"] == 6.0 and i.weights[0][0].tolist() == [6, 6]


def test_a_state_starts_from_weights_and_earlier_states() -> None:
    i = simple(algorithm("state a = weight  state b = 2 * a + 1  state n = 3  b = b  n = n  a = a  step"))
    assert i.states(1, 0)["a"].tolist() == [1, 2] and i.states(1, 0)["b"].tolist() == [3, 5]
    assert i.states(1, 0)["n"] == 3.0


def test_a_state_never_becomes_non_finite_and_a_weight_may() -> None:
    i = simple(algorithm("state s = weight  state n = 1  s = s / grad  n = n / (1 - t)  weight = weight / grad"))
    i.iterate([[np.array([0.0, 2.0])]] * 2)
    assert i.states(0, 0)["s"].tolist() == [1, 1] and i.states(0, 0)["n"] == 1.0
    assert i.weights[0][0].tolist() == [np.inf, 1]
    i.iterate([[np.array([1.0, 1.0])]] * 2)
    assert i.states(0, 0)["n"] == 1.0


def test_every_counts_and_its_period_is_evaluated_each_time() -> None:
    """Due in iterations 0, 1 (period 1), then after 3."""
    i = simple(algorithm("state n = 0  every where(t < 2, 1, 3) { n += 1 }  weight = n"), 1)
    seen = []
    for _ in range(9):
        ones(i, [0])
        seen.append(i.weights[0][0][0])
    assert seen == [1, 2, 2, 2, 3, 3, 3, 4, 4]


def test_phases_follow_one_another_and_count_the_runs_of_their_block() -> None:
    text = (
        "state n = 0  every 2 { phase a for 2 { n += 1 }  phase b for 1 { n += 10 }  phase c { n += 100 } }  weight = n"
    )
    i = simple(algorithm(text), 1)
    seen = []
    for _ in range(8):
        ones(i, [0])
        seen.append(i.weights[0][0][0])
    assert seen == [0, 1, 1, 2, 2, 12, 12, 112]


def test_an_after_lands_with_its_lets_whether_or_not_its_block_runs() -> None:
    text = "state s = 0  every 3 { let a = t  after 2 { s = 100 * a + t } }  weight = s"
    i = simple(algorithm(text), 1)
    seen = []
    for _ in range(9):
        ones(i, [0])
        seen.append(i.weights[0][0][0])
    assert seen == [0, 0, 0, 0, 204, 204, 204, 507, 507]


def test_an_after_within_an_after() -> None:
    text = "state s = 0  every 5 { let a = t  after 1 { let b = t  after 2 { s = 100 * a + 10 * b + t } } }  weight = s"
    i = simple(algorithm(text), 1)
    for _ in range(7):
        ones(i, [0])
    assert i.weights[0][0][0] == 0
    ones(i, [0])
    assert i.weights[0][0][0] == 457


@pytest.mark.parametrize("period", [1, 2])
def test_a_round_counts_the_runs_of_the_nearest_block(period: int) -> None:
    text = f"every {period} {{ weight = mix(weight + rank, one_peer_exponential) }}"
    i = simple(algorithm(text), 4)
    x = np.stack([np.array([1.0, 2.0])] * 4)
    ranks = np.arange(4.0)[:, None]
    for t in range(6):
        ones(i, [0] * 4)
        if (t + 1) % period == 0:
            x = matrix(Topology("one_peer_exponential"), 4, t // period, SEED) @ (x + ranks)
        np.testing.assert_allclose(np.stack([w[0] for w in i.weights]), x)


def test_own_is_this_rounds_weight_of_oneself() -> None:
    i = simple(algorithm("weight = own(chain) + 0 * weight"), 3)
    ones(i, [0] * 3)
    wanted = [dict(weights(Topology("chain"), 3, 0, SEED, rank))[rank] for rank in range(3)]
    assert [w[0][0] for w in i.weights] == pytest.approx(wanted)


def test_an_absent_gradient_reads_as_zeros_and_is_not_stepped_with() -> None:
    rule = Momentum()
    i = simple(algorithm("state s = 0  s = s + mean(grad)  step"), 2, rule=rule)
    assert [r[0] is None for r in ones(i, [4, None])] == [False, True]
    assert i.states(1, 0)["s"].tolist() == [2, 2]
    assert rule.steps == [(0, 0)]
    assert i.weights[1][0].tolist() == [1, 2]


def test_a_mean_of_gradients_keeps_what_none_means() -> None:
    rule = Momentum()
    i = simple(program("relax gradients"), 2, rule=rule)
    assert [r[0].tolist() for r in ones(i, [4, None])] == [[2, 2], [2, 2]]
    assert ones(i, [None, None]) == [[None], [None]]
    assert rule.steps == [(0, 0), (1, 0)]


def test_nothing_is_stepped_with_until_a_late_gradient_lands() -> None:
    rule = Momentum()
    i = simple(program("relax gradients { delay = 2 }"), 2, rule=rule)
    assert ones(i, [1, 3]) == [[None], [None]] and ones(i, [5, 5]) == [[None], [None]]
    assert rule.steps == [] and i.weights[0][0].tolist() == [1, 2]
    assert ones(i, [0, 0])[0][0].tolist() == [2, 2]
    assert i.weights[0][0].tolist() == [0.8, 1.8]
    assert ones(i, [None, None])[0][0].tolist() == [5, 5]


def test_the_same_where_more_than_the_gradient_is_late() -> None:
    rule = Momentum()
    i = simple(algorithm("let a = mean(2 * grad)  after 1 { grad = a }  step"), 2, rule=rule)
    assert ones(i, [1, 3]) == [[None], [None]] and rule.steps == []
    assert ones(i, [5, 5])[1][0].tolist() == [4, 4] and len(rule.steps) == 2


def test_a_gradient_that_lands_in_one_phase_only_is_a_plain_one_in_the_other() -> None:
    rule = Momentum()
    text = "phase now for 2 { grad = mean(grad) }  phase late { let a = mean(grad)  after 1 { grad = a } }  step"
    i = simple(algorithm(text), 2, rule=rule)
    assert [ones(i, [t, t + 2])[0][0] is None for t in range(4)] == [False, False, True, False]
    assert len(rule.steps) == 6
    np.testing.assert_allclose(i.weights[0][0], np.array([1, 2]) - RATE * (1 + 2 + 3))


def test_parameters_that_no_statement_governs_are_the_users() -> None:
    parameters = [Parameter(0, "a", (2,), "f64"), Parameter(1, "b", (2,), "f64")]
    i = Interpreter(program('relax gradients for "a"'), parameters, 2, SEED, [np.ones(2)] * 2, Momentum())
    found = i.iterate([[np.full(2, 1.0)] * 2, [np.full(2, 3.0)] * 2])
    assert [[g.tolist() for g in worker] for worker in found] == [[[2, 2], [1, 1]], [[2, 2], [3, 3]]]
    np.testing.assert_allclose(i.weights[1][1], [0.7, 0.7])


def test_weights_and_gradients_are_kept_in_their_own_type_and_states_are_not() -> None:
    i = simple(algorithm("state s = 0  grad = mean(grad) / 3  s = grad / 3  weight = weight / 3"), 2, "bf16")
    found = ones(i, [1, 1])[0][0]
    third = round_to(np.array([1 / 3], np.float32), "bf16")
    assert found.tolist() == [third[0]] * 2
    assert i.states(0, 0)["s"][0] == np.float32(third[0]) / np.float32(3)
    assert i.weights[0][0].tolist() == [third[0], round_to(np.array([2 / 3], np.float32), "bf16")[0]]


def test_a_norm_makes_a_cell() -> None:
    i = simple(algorithm("state size = 0  size = 0.5 * size + norm(grad)  weight -= grad / size"), 1)
    for _ in range(2):
        i.iterate([[np.array([3.0, 4.0])]])
    assert i.states(0, 0)["size"].shape == () and i.states(0, 0)["size"] == 7.5
    np.testing.assert_allclose(i.weights[0][0], [1 - 0.6 - 0.4, 2 - 0.8 - 4 / 7.5], atol=1e-15)


def test_what_is_the_optimisers_can_be_read() -> None:
    rule = Momentum(0.5)
    i = simple(
        algorithm("step  weight -= optimizer.weight_decay * weight + lr * optimizer.momentum_buffer"), 1, rule=rule
    )
    ones(i, [1])
    x = np.array([1.0, 2.0]) - RATE
    np.testing.assert_allclose(i.weights[0][0], x - 0.25 * x - RATE)


def test_without_an_optimiser_what_reads_it_is_refused() -> None:
    i = Interpreter(algorithm("weight -= lr * grad"), one("f64", 2), 1, SEED)
    with pytest.raises(ValueError, match="optimizer"):
        ones(i, [1])


def test_numbers_are_computed_on_the_host_and_rounded_once() -> None:
    """lr / (1 - b^(t+1)) * grad is one number times a tensor, in f32."""
    i = simple(algorithm("weight = lr / (1 - 0.9 ^ (t + 1)) * grad"), 1, "f32")
    for t in range(3):
        i.iterate([[np.array([1.0, 3.0], np.float32)]])
        factor = np.float32(RATE / (1 - 0.9 ** (t + 1)))
        assert i.weights[0][0].tolist() == [factor, factor * np.float32(3)]


def test_a_modulo_code_is_mixed_next_to_ones_own_weight() -> None:
    """Both partners move by half their distance, within a unit, and their sum stays."""
    text = "let code = encode(weight, modulo(8, unit = 0.01))  weight += mix(code, complete) - decode(code)  step"
    i = Interpreter(algorithm(text), one("f64", 50), 2, SEED, [np.full(50, 1000.0)], Momentum())
    for t in range(5):
        before = [w[0].copy() for w in i.weights]
        grads = [[drawn(t, w, 50)] for w in range(2)]
        i.iterate(grads)
        after = [w[0] + RATE * grads[k][0] for k, w in enumerate(i.weights)]
        np.testing.assert_allclose(sum(after), sum(before), rtol=1e-14)
        assert np.abs(after[0] - sum(before) / 2).max() <= 0.01


def test_feedback_of_a_mix_keeps_what_its_encoder_lost() -> None:
    """mix(x, T, compress = c, feedback = worker): v = x + r, q = encode(v), r = v - q, the result is W q."""

    text = "state last = 0  step  last = mix(weight, ring, compress = 1bit, feedback = worker)"
    i = run(algorithm(text), 4, workers=3)
    assert all(r.any() for r in i.residuals[next(iter(i.residuals))].worker)
    w = matrix(Topology("ring"), 3, 0, 0)
    x, lost = np.stack([start()] * 3), np.zeros((3, SIZE))
    for t in range(4):
        x = x - RATE * gradients(t, x)
        sent = np.stack([signs(v) for v in x + lost])
        lost = x + lost - sent
    np.testing.assert_allclose(np.stack([i.states(r, 0)["last"] for r in range(3)]), w @ sent, atol=1e-12)
