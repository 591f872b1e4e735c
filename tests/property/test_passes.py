"""The interpreter before a pass == after it, on drawn programs, models and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
from drawn_programs import bodies, check_agreement
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from relaxc import pipeline
from relaxc.language.diagnostics import SpecError
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Body, Program
from relaxc.wire.parameters import Parameter

CODECS = ["8bit", "4bit", "2bit", "1bit", "bf16", "fp16", "minmax(8, block = 5)", "absmax(4, block = 3)",
          "minmax(4, block = 16, rounding = stochastic)", "randomk(25%)"]  # fmt: skip
SELECTING = ["topk(20%)", "topk(7)", "dct(3, 2)"]
FORM = "relax gradients {{ compress = {}, feedback = {}, route = {}, delay = {} }}".format
FEEDBACKS = st.sampled_from(["none", "worker", "both", "auto"])
SPECS = st.one_of(
    st.builds(FORM, st.sampled_from(CODECS), FEEDBACKS, st.sampled_from(["all", "ring", "gather"]), st.integers(0, 2)),
    st.builds(FORM, st.sampled_from(SELECTING), FEEDBACKS, st.sampled_from(["auto", "gather"]), st.integers(0, 2)),
)
REFUSALS = {"RX0340", "RX0341", "RX0342", "RX0343"}
"""What passes may refuse in a program that is drawn without any sense."""
REFUSED_AT_MOST = 0.1
"""Of the drawn programs."""
SIZES = st.lists(st.integers(0, 60), min_size=1, max_size=3)


def gradients(draw: np.random.Generator, parameters: list[Parameter], workers: int) -> list[list[Any]]:
    """Some absent, some with a NaN, over many magnitudes."""

    def one(parameter: Parameter) -> Any:
        if draw.random() < 0.2:
            return None
        values = (draw.standard_normal(parameter.elements) * 10.0 ** draw.integers(-6, 6)).astype(np.float32)
        if values.size and draw.random() < 0.1:
            values[draw.integers(values.size)] = np.nan
        return values

    return [[one(p) for p in parameters] for _ in range(workers)]


@settings(max_examples=60, deadline=None)
@given(SPECS, SIZES, st.integers(1, 5), st.integers(0, 2**31))
def test_a_mean_as_messages_is_the_mean_by_definition(spec: str, sizes: list[int], workers: int, seed: int) -> None:
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    parameters = [Parameter(n, f"p{n}", (size,), "f32") for n, size in enumerate(sizes)]
    before = Interpreter(program, parameters, workers, seed)
    after = Interpreter(program, parameters, workers, seed, messages=True)
    draw = np.random.default_rng(seed)
    for _ in range(4):
        made = gradients(draw, parameters, workers)
        for left, right in zip(before.iterate(made), after.iterate(made), strict=True):
            for a, b in zip(left, right, strict=True):
                assert (a is None) == (b is None)
                assert a is None or b is None or a.tobytes() == b.tobytes()
    for key, kept in before.residuals.items():
        assert all(np.isfinite(x).all() for x in [*kept.worker, kept.owner])
        assert kept.owner.tobytes() == after.residuals[key].owner.tobytes()


@settings(max_examples=40, deadline=None)
@given(
    st.one_of(
        st.tuples(st.sampled_from([*CODECS[:4], *CODECS[6:8], CODECS[-1]]), st.sampled_from(["all", "ring", "gather"])),
        st.tuples(st.sampled_from(SELECTING), st.just("gather")),
    ),
    st.integers(1, 4),
    st.integers(0, 2**31),
)
def test_what_is_applied_and_what_is_kept_is_what_was_contributed(
    how: tuple[str, str], workers: int, seed: int
) -> None:
    """With `both`: the sum of all results + the owners' residuals + the mean of the workers' = the mean of all gradients."""
    codec, route = how
    spec = f"relax gradients {{ compress = {codec}, feedback = both, route = {route} }}"
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    parameters = [Parameter(0, "p", (50,), "f64")]
    interpreter = Interpreter(program, parameters, workers, seed)
    draw = np.random.default_rng(seed)
    applied, contributed = np.zeros(50), np.zeros(50)
    for _ in range(6):
        made = [[draw.standard_normal(50)] for _ in range(workers)]
        contributed += sum(m[0] for m in made) / workers
        result = interpreter.iterate(made)[0][0]
        assert result is not None
        applied += result
    (residuals,) = interpreter.residuals.values()
    kept = residuals.owner + sum(residuals.worker) / workers
    np.testing.assert_allclose(applied + kept, contributed, rtol=1e-9, atol=1e-9)


def test_paths_mean_what_their_program_means() -> None:
    """And passes refuse few of the programs, so that the test is one of meanings."""
    refused: list[bool] = []

    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    @given(bodies(), st.integers(1, 4), st.sampled_from(["f32", "bf16", "f64"]), st.integers(0, 2**31))
    def run(body: Body, workers: int, dtype: str, seed: int) -> None:
        refused.append(is_refused(body, workers, dtype, seed))

    run()
    assert sum(refused) <= REFUSED_AT_MOST * len(refused)


def is_refused(body: Body, workers: int, dtype: str, seed: int) -> bool:
    try:
        check_agreement(Program((body,)), workers, seed, dtype)
    except SpecError as error:
        if error.diagnostics[0].code not in REFUSALS:
            raise
        return True
    return False
