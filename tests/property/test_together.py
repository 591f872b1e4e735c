"""Drawn programs: many workers at once have the interpreter's bits in all weights, states and residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_programs import Descent, assert_same, bodies, drawn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Body, Program
from relaxc.simulate.together import Together
from relaxc.wire.parameters import Parameter

SIZES = (9, 0, 33)


class RowDescent(Descent):
    def step_rows(self, parameter: Parameter, weights: Any, grads: Any) -> Any:
        rows = [
            super(RowDescent, self).step(w, parameter, *row) for w, row in enumerate(zip(weights, grads, strict=True))
        ]
        return np.stack(rows)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(bodies(), st.integers(1, 4), st.sampled_from(["f32", "bf16", "f64"]), st.integers(0, 2**31))
def test_the_same_bits(body: Body, workers: int, dtype: str, seed: int) -> None:
    program = Program((body,))
    parameters = [Parameter(n, f"p{n}", (size,), dtype) for n, size in enumerate(SIZES)]
    draw = np.random.default_rng(seed)
    start = [drawn(draw, p) for p in parameters]
    slow = Interpreter(program, parameters, workers, seed, start, Descent())
    quick = Together(program, parameters, workers, seed, start, RowDescent())
    for _ in range(6):
        grads = [np.stack([drawn(draw, p) for _ in range(workers)]) for p in parameters]
        slow.iterate([[rows[w] for rows in grads] for w in range(workers)])
        quick.advance(grads)
        for p in parameters:
            assert_same(np.stack([of[p.number] for of in slow.weights]), quick.rows(p.number))
            for w in range(workers):
                for name, value in slow.states(w, p.number).items():
                    assert_same(np.ravel(value), np.ravel(quick.states(w, p.number)[name]))
    for key, residuals in slow.residuals.items():
        for one, other in zip(residuals.worker, quick.residuals[key].worker, strict=True):
            assert_same(one, other)
        assert_same(residuals.owner, quick.residuals[key].owner)
