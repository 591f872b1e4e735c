"""What an exchange of low rank means: what is applied and what is remembered are together what was contributed."""

from __future__ import annotations

import numpy as np
import pytest
from path_runner import PathRunner

from relaxc import pipeline
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.wire.low_rank import Factors, factors_of, first_q
from relaxc.wire.parameters import Parameter

SHAPES = ((7, 5), (3, 4, 2), (6,), (), (0, 3), (1, 9), (64, 3))
PARAMETERS = [Parameter(n, f"p{n}", shape, "f64" if n != 6 else "f32") for n, shape in enumerate(SHAPES)]
WORKERS = 3


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def drawn(seed: int) -> list[list[np.ndarray]]:
    draw = np.random.default_rng(seed)
    return [[draw.normal(size=p.elements) for p in PARAMETERS] for _ in range(WORKERS)]


def mean(grads: list[list[np.ndarray]], number: int) -> np.ndarray:
    return np.mean([g[number] for g in grads], axis=0)


def test_shapes() -> None:
    assert factors_of((7, 5, 2), 4) == Factors(7, 10, 4)
    assert factors_of((3, 50), 4) == Factors(3, 50, 3)
    assert factors_of((9,), 4) == Factors(9, 1, 1)
    assert factors_of((), 4) == Factors(1, 1, 1)
    assert factors_of((0, 5), 4) == factors_of((5, 0), 4) == Factors(0, 0, 0)


def test_the_first_q_is_normal_and_drawn_alike() -> None:
    q = first_q(1, 2, 3, 20000)
    assert abs(q.mean()) < 0.03 and abs(q.std() - 1) < 0.03 and abs((q**4).mean() - 3) < 0.2
    assert np.array_equal(q, first_q(1, 2, 3, 20000)) and np.array_equal(q[:5], first_q(1, 2, 3, 5))
    for other in ((2, 2, 3), (1, 4, 3), (1, 2, 4)):
        assert not np.array_equal(q[:5], first_q(*other, 5))


@pytest.mark.parametrize("rank", [1, 2, 4])
def test_what_is_applied_and_what_is_left_is_what_was_contributed(rank: int) -> None:
    running = Interpreter(program(f"relax gradients {{ compress = lowrank({rank}) }}"), PARAMETERS, WORKERS)
    total = [np.zeros(p.elements) for p in PARAMETERS]
    for t in range(6):
        grads = drawn(t)
        results = running.iterate(grads)
        for number, parameter in enumerate(PARAMETERS):
            total[number] += mean(grads, number) - results[0][number]
            lost = running.residuals[0, number].worker
            close = 1e-12 if parameter.dtype == "f64" else 1e-5
            np.testing.assert_allclose(np.mean(lost, axis=0), total[number], atol=close)
            assert all(np.array_equal(results[0][number], other[number]) for other in results)
            matrix = results[0][number].reshape(factors_of(parameter.shape, rank).rows or 1, -1)
            assert matrix.size == 0 or np.linalg.matrix_rank(matrix, tol=1e-6) <= rank


def test_a_rank_that_is_enough_loses_nothing() -> None:
    """Vectors are of rank 1; what is projected on all of a column space stays."""
    running = Interpreter(program("relax gradients { compress = lowrank(9), feedback = none }"), PARAMETERS, WORKERS)
    for t in range(3):
        grads = drawn(t)
        results = running.iterate(grads)
        for number, parameter in enumerate(PARAMETERS):
            close = 1e-12 if parameter.dtype == "f64" else 1e-5
            np.testing.assert_allclose(results[0][number], mean(grads, number), atol=close)


def test_a_constant_matrix_of_low_rank_is_found_and_one_that_stays_is_approached() -> None:
    """The power method: what is left of a matrix that comes again falls by the ratio of its singular values."""
    parameter = [Parameter(0, "a", (30, 20), "f64")]
    draw = np.random.default_rng(0)
    u, v = np.linalg.qr(draw.normal(size=(30, 20)))[0], np.linalg.qr(draw.normal(size=(20, 20)))[0]
    values = 0.5 ** np.arange(20)
    matrix = (u * values) @ v.T
    running = Interpreter(program("relax gradients { compress = lowrank(3), feedback = none }"), parameter, 2)
    grads = [[matrix.ravel()], [matrix.ravel()]]
    for _ in range(20):
        result = running.iterate(grads)[0][0]
    assert result is not None
    best = np.linalg.norm(values[3:])
    assert np.linalg.norm(result - matrix.ravel()) == pytest.approx(best, rel=1e-6)


def test_a_sum_is_as_many_means() -> None:
    def run(kind: str) -> list[np.ndarray]:
        text = f"algorithm a {{ grad = {kind}(grad, compress = lowrank(2)) step }}\nrelax with a"
        running = Interpreter(program(text), PARAMETERS, WORKERS)
        return [g for t in range(3) for g in running.iterate(drawn(t))[0] if g is not None]

    for one, all_of_them in zip(run("mean"), run("sum"), strict=True):
        np.testing.assert_allclose(WORKERS * one, all_of_them, rtol=1e-6)


def test_what_is_not_finite_in_one_iteration_is_gone_in_the_next() -> None:
    running = Interpreter(program("relax gradients { compress = lowrank(2) }"), PARAMETERS, WORKERS)
    for t, bad in enumerate((None, np.nan, np.inf, None, None)):
        grads = drawn(t)
        if bad is not None:
            grads[1][0][3] = bad
        results = running.iterate(grads)
        assert np.isfinite(results[0][0]).all() == (bad is None), t
        for number in range(len(PARAMETERS)):
            kept = running.residuals[0, number]
            assert all(np.isfinite(lost).all() for lost in kept.worker)
            assert kept.factor is None or np.isfinite(kept.factor).all()


def test_after_zeros_it_goes_on() -> None:
    running = Interpreter(program("relax gradients { compress = lowrank(2) }"), PARAMETERS, WORKERS)
    nothing = [[np.zeros(p.elements) for p in PARAMETERS] for _ in range(WORKERS)]
    for _ in range(3):
        assert not np.any([g.any() for g in running.iterate(nothing)[0]])
    applied = [np.zeros(p.elements) for p in PARAMETERS]
    for _ in range(60):
        for number, g in enumerate(running.iterate(drawn(0))[0]):
            applied[number] += g
    for number in range(len(PARAMETERS)):
        wanted = 60 * mean(drawn(0), number)
        assert np.linalg.norm(applied[number] - wanted) <= 0.2 * np.linalg.norm(wanted)


@pytest.mark.parametrize(
    "text",
    [
        "relax gradients for ndim < 2\nrelax gradients { compress = lowrank(2) }",
        "relax updates { every = 2, compress = lowrank(2) }",
        "relax momentum { warmup = 2, compress = lowrank(1), feedback = none }",
        "algorithm a { step let d = weight - mean(weight, compress = lowrank(2)) weight -= d }\nrelax with a",
    ],
)
def test_paths_do_the_same(text: str) -> None:
    class Rule:
        def step(self, worker: int, parameter: Parameter, weight: np.ndarray, grad: np.ndarray) -> np.ndarray:
            return weight - 0.1 * grad

        def number(self, worker: int, parameter: Parameter, name: str) -> float:
            return 0.1

        def state(self, worker: int, parameter: Parameter, name: str) -> np.ndarray:
            raise AssertionError(name)

    made = program(text)
    one = Interpreter(made, PARAMETERS, WORKERS, optimizer=Rule())
    other = PathRunner(pipeline.to_paths(made), PARAMETERS, WORKERS, optimizer=Rule())
    for t in range(5):
        grads = drawn(t)
        one.iterate(grads)
        other.iterate(grads)
        for left, right in zip(one.weights, other.weights, strict=True):
            assert all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
