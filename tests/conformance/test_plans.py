"""A built plan on real workers gives what the interpreter says, bit for bit: over numbers of workers, sizes and specs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numbers_of_workers import on_all, on_two
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.gradients import take_gradient
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Exchange
from relaxc.resources import folder
from relaxc.wire.parameters import Parameter

SIZES = {
    "scalar": (), "none": (0,), "one": (1,), "seven": (7,), "matrix": (20, 50), "prime": (4999,), "large": (130, 517),
    "in_half": (3, 700), "in_brain": (2049,), "in_double": (61, 17),
}  # fmt: skip
DTYPES = {"in_half": "f16", "in_brain": "bf16", "in_double": "f64"}
PARAMETERS = tuple(
    Parameter(n, name, shape, DTYPES.get(name, "f32")) for n, (name, shape) in enumerate(sorted(SIZES.items()))
)
"""In ParameterDict's order, which is alphabetical."""
ITERATIONS = 5
NAN_AT, ABSENT_AT, ABSENT_EVERYWHERE_AT = 1, 2, 3

LIBRARY = [
    "allreduce", "bagua_minmax", "bf16", "bytegrad", "delayed_sgd", "double_squeeze", "fp16", "majority_vote", "natural", "qsgd",
    "quickstart", "terngrad",
]  # fmt: skip
"""Those that exchange gradients only."""
VARIANTS = {
    "minmax2": "relax gradients { compress = 2bit }",
    "minmax4 ring": "relax gradients { compress = 4bit, route = ring }",
    "minmax8 worker": "relax gradients { compress = minmax(8, block = 1000), feedback = worker }",
    "minmax8 ring worker": "relax gradients { compress = 8bit, feedback = worker, route = ring }",
    "absmax stochastic": "relax gradients { compress = absmax(4, block = 64, rounding = stochastic), feedback = both }",
    "absmax8 ring": "relax gradients { compress = absmax(8, block = 7), route = ring }",
    "stochastic ring": "relax gradients { compress = minmax(8, rounding = stochastic), route = ring }",
    "1bit ring delay": "relax gradients { compress = 1bit, route = ring, delay = 2 }",
    "exact ring": "relax gradients { route = ring }",
    "bf16 ring": "relax gradients { compress = bf16, route = ring }",
    "fp16 feedback": "relax gradients { compress = fp16, feedback = both }",
    "topk": "relax gradients { compress = topk(3%) }",
    "topk worker late": "relax gradients { compress = topk(20), feedback = worker, delay = 1 }",
    "randomk": "relax gradients { compress = randomk(10%) }",
    "randomk ring worker": "relax gradients { compress = randomk(2%), feedback = worker, route = ring, delay = 2 }",
    "randomk gather": "relax gradients { compress = randomk(5%), route = gather }",
    "dct": "relax gradients { compress = dct(16, 9) }",
    "minmax gather": "relax gradients { compress = 4bit, route = gather }",
    "bf16 gather": "relax gradients { compress = bf16, route = gather, delay = 1 }",
    "two bodies": 'relax gradients for "matrix" { compress = 8bit, delay = 1 }\n'
    "relax gradients for ndim < 2 { compress = bf16 }\nrelax gradients { compress = 2bit, route = ring }",
}


def text_of(name: str) -> str:
    return VARIANTS[name] if name in VARIANTS else (folder("specs") / f"{name}.relax").read_text()


def gradient(worker: int, iteration: int, parameter: Parameter) -> np.ndarray[Any, Any] | None:
    """What backward makes: seeded normal numbers, over many magnitudes; NaN and absent ones where the script says."""
    if iteration == ABSENT_AT and worker == 0 and parameter.name in ("matrix", "prime", "in_half"):
        return None
    if iteration == ABSENT_EVERYWHERE_AT and parameter.name in ("seven", "large", "in_brain"):
        return None
    draw = np.random.default_rng([worker, iteration, parameter.number])
    values = draw.standard_normal(parameter.elements) * 10.0 ** draw.integers(-3, 3)
    if iteration == NAN_AT and worker == 0 and parameter.name in ("matrix", "large") and parameter.elements:
        values[3], values[-1] = np.nan, np.inf
    return values.reshape(parameter.shape)


def train(rank: int, workers: int, spec: str) -> tuple[list[dict[str, Any]], dict[str, Any], tuple[int, int, int]]:
    """On one worker: `.grad` after each backward, as the bytes of float64; the plan's state; bytes sent, predicted, done."""
    import torch

    import relaxc

    kinds = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "f64": torch.float64}
    model = torch.nn.ParameterDict({p.name: torch.zeros(p.shape, dtype=kinds[p.dtype]) for p in PARAMETERS})
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    results = []
    for iteration in range(ITERATIONS):
        loss = torch.zeros((), dtype=torch.float64)
        for p in PARAMETERS:
            made = gradient(rank, iteration, p)
            if made is not None:
                loss = loss + (model[p.name] * torch.from_numpy(made).to(kinds[p.dtype])).sum().double()
        loss.backward()
        results.append({p.name: None if model[p.name].grad is None else model[p.name].grad.double().numpy().copy()
                        for p in PARAMETERS})  # fmt: skip
        model.zero_grad(set_to_none=True)
    state = {k: v.double().numpy() for k, v in relaxed.state_dict().items() if isinstance(v, torch.Tensor)}
    stats = relaxed.stats()
    relaxed.detach()
    return results, state, (stats["bytes_sent"], stats["predicted_bytes_per_iteration"], stats["exchanges"])


def rounded(values: np.ndarray[Any, Any] | None, dtype: str) -> np.ndarray[Any, Any] | None:
    """As the tensor of the model holds it."""
    from relaxc.program.evaluate import round_to

    if values is None:
        return None
    return round_to(values.astype(np.float64 if dtype == "f64" else np.float32), dtype)


def interpreted(spec: str, workers: int) -> tuple[list[list[list[Any]]], Interpreter]:
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    interpreter = Interpreter(program, PARAMETERS, workers, seed=SEED, messages=True)
    results = []
    for iteration in range(ITERATIONS):
        grads = [[rounded(gradient(w, iteration, p), p.dtype) for p in PARAMETERS] for w in range(workers)]
        results.append(interpreter.iterate(grads))
    return results, interpreter


@pytest.mark.parametrize(("name", "workers"), [*on_all(LIBRARY), *on_two(VARIANTS)])
def test_a_plan_gives_what_the_interpreter_says(pool: Pool, name: str, workers: int) -> None:
    spec = text_of(name)
    answers = pool.run(train, workers, spec)
    expected, interpreter = interpreted(spec, workers)
    codecs = [exchange.codec for exchange in gradients_of(interpreter)]
    for rank, (results, state, (sent, predicted, done)) in enumerate(answers):
        assert sent == predicted * done, "bytes on the wire are not the plan's"
        for iteration in range(ITERATIONS):
            for p in PARAMETERS:
                exact = codecs[interpreter.bodies[p.number]] is not None
                same_gradient(
                    results[iteration][p.name], expected[iteration][rank][p.number], exact, f"{p.name} at {iteration}"
                )
        same_residuals(state, interpreter, rank, workers)


def gradients_of(interpreter: Interpreter) -> list[Exchange]:
    """By body, the exchange of its gradient."""
    found = [take_gradient(body.statements)[0] for body in interpreter.program.bodies]
    return [gradient.exchange for gradient in found if gradient is not None]


def same_gradient(found: Any, wanted: Any, exact: bool, where: str) -> None:
    """Zeros stand for what has not landed (with a delay), None for a parameter that no worker had a gradient for."""
    if wanted is None:
        assert found is None or not found.any(), where
        return
    wanted = wanted.reshape(found.shape).astype(np.float64)
    if exact:
        np.testing.assert_array_equal(found, wanted, err_msg=where)
    else:  # a backend sums in an order, and for half types in a precision, of its own
        fine = 1e-2 if where.startswith(("in_half", "in_brain")) else 1e-5
        largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        np.testing.assert_allclose(found, wanted, rtol=fine, atol=fine * largest, err_msg=where)


def same_residuals(state: dict[str, Any], interpreter: Interpreter, rank: int, workers: int) -> None:
    from relaxc.wire.ownership import shares

    for (_place, number), losses in interpreter.residuals.items():
        name = PARAMETERS[number].name
        if f"residual/{name}/rank{rank}" in state:
            np.testing.assert_array_equal(state[f"residual/{name}/rank{rank}"], losses.worker[rank])
            assert np.isfinite(losses.worker[rank]).all()
        if f"owner/{name}/rank{rank}" in state:
            codec = gradients_of(interpreter)[interpreter.bodies[number]].codec
            start, end = shares(number, PARAMETERS[number].elements, codec.layout, workers)[rank]
            np.testing.assert_array_equal(state[f"owner/{name}/rank{rank}"], losses.owner[start:end])
