"""Exchanges of low rank on real workers: as the interpreter says within float error, the bytes that are predicted, the
same bits for all, and nothing that stays broken."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from one_matrix import exchanged, matrix_on
from pool import Pool

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.interpret import Interpreter
from relaxc.wire.parameters import Parameter

SHAPES = {
    "empty": (0, 3), "image": (6, 4, 3, 3), "in_brain": (40, 21), "in_double": (31, 17), "large": (70, 117), "one": (1,),
    "scalar": (), "turned": (20, 30), "vector": (19,),
}  # fmt: skip
DTYPES = {"in_brain": "bf16", "in_double": "f64"}
PARAMETERS = tuple(Parameter(n, name, s, DTYPES.get(name, "f32")) for n, (name, s) in enumerate(sorted(SHAPES.items())))
LAID = {"image", "turned"}
"""Those whose memory is not in the order of their indices: channels last, and columns first."""
ITERATIONS, RATE = 6, 0.05
SPECS = {
    "gradients": "relax gradients { compress = lowrank(2) }",
    "without feedback": "relax gradients for ndim < 2\nrelax gradients { compress = lowrank(3), feedback = none }",
    "updates": "relax updates { every = 2, compress = lowrank(2), rate = 0.7, momentum = 0.5 }",
    "momentum": "relax momentum { warmup = 2, compress = lowrank(2) }",
    "sum": "algorithm a { grad = sum(grad, compress = lowrank(2)) step }\nrelax with a",
    "with others": """
algorithm a { state anchor = weight
  grad = mean(grad, compress = lowrank(1)) step
  every 3 { anchor += mean(weight - anchor, compress = lowrank(4)) + mix(anchor, ring, compress = 8bit) - anchor } }
relax with a
""",
}


def gradient(parameter: Parameter, worker: int, t: int) -> np.ndarray:
    draw = np.random.default_rng([parameter.number, worker, t])
    return draw.normal(size=parameter.shape)


def rounded(value: np.ndarray, dtype: str) -> Any:
    import torch

    kinds = {"f64": torch.float64, "bf16": torch.bfloat16, "f32": torch.float32}
    return torch.tensor(value).to(kinds[dtype])


def laid(parameter: Parameter, value: Any) -> Any:
    import torch

    if parameter.name == "image":
        return value.contiguous(memory_format=torch.channels_last)
    return value.t().contiguous().t() if parameter.name == "turned" else value


def first(parameter: Parameter) -> Any:
    return laid(
        parameter, rounded(np.random.default_rng(parameter.number).normal(size=parameter.shape), parameter.dtype)
    )


def train(rank: int, workers: int, spec: str) -> Any:
    import torch

    import relaxc

    model = torch.nn.ParameterDict({p.name: torch.nn.Parameter(first(p)) for p in PARAMETERS})
    optimizer = torch.optim.SGD(model.parameters(), RATE)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60, check_every=2)
    made = []
    for t in range(ITERATIONS):
        optimizer.zero_grad()
        grads = [laid(p, rounded(gradient(p, rank, t), p.dtype)) for p in PARAMETERS]
        sum((model[p.name] * g).double().sum() for p, g in zip(PARAMETERS, grads, strict=True)).backward()
        optimizer.step()
        model.state_dict()
        made.append([model[p.name].detach().double().contiguous().numpy().flatten() for p in PARAMETERS])
    stats = relaxed.stats()
    relaxed.detach()
    return made, stats["bytes_sent"], stats["predicted_bytes"]


class Descent:
    def step(self, worker: int, parameter: Parameter, weight: np.ndarray, grad: np.ndarray) -> np.ndarray:
        return weight - weight.dtype.type(RATE) * grad

    def number(self, worker: int, parameter: Parameter, name: str) -> float:
        return {"lr": RATE}[name]

    def state(self, worker: int, parameter: Parameter, name: str) -> np.ndarray:
        raise AssertionError(name)


def interpreted(spec: str, workers: int) -> list[list[list[np.ndarray]]]:
    program = pipeline.to_program(pipeline.to_spec(Source("spec", spec), {}))
    weights = [first(p).double().contiguous().numpy() for p in PARAMETERS]
    running = Interpreter(program, PARAMETERS, workers, SEED, weights, Descent())
    made = []
    for t in range(ITERATIONS):
        grads = [[rounded(gradient(p, w, t), p.dtype).double().numpy() for p in PARAMETERS] for w in range(workers)]
        running.iterate(grads)
        made.append([[np.array(x, float) for x in one] for one in running.weights])
    return made


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("spec", SPECS)
def test_real_workers_do_what_the_program_means(pool: Pool, spec: str, workers: int) -> None:
    wanted = interpreted(SPECS[spec], workers)
    close = {"f32": 2e-4, "bf16": 0.05, "f64": 1e-9}
    for rank, (found, sent, predicted) in enumerate(pool.run(train, workers, SPECS[spec])):
        assert sent == predicted
        for t, weights in enumerate(found):
            for parameter, weight in zip(PARAMETERS, weights, strict=True):
                right = wanted[t][rank][parameter.number]
                np.testing.assert_allclose(weight, right, atol=close[parameter.dtype], rtol=0, err_msg=parameter.name)


# --- what is not finite


def broken_once(rank: int, workers: int) -> list[bool]:
    """Whether gradients are finite after each iteration; worker 1 has one that is not in the second."""
    import loops
    import torch

    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    relaxed = loops.plan("relax gradients { compress = lowrank(2) }").attach(model, optimizer, timeout=60)
    finite = []
    for t in range(5):
        optimizer.zero_grad()
        x, y = loops.batch(rank, t)
        if t == 1 and rank == 1:
            x = x * float("inf")
        torch.nn.functional.mse_loss(model(x), y).backward()
        finite.append(all(bool(torch.isfinite(p.grad).all()) for p in model.parameters()))
        for p in model.parameters():
            p.grad.nan_to_num_(0.0, 0.0, 0.0)
        optimizer.step()
        for key, value in relaxed.state_dict().items():
            assert not torch.is_tensor(value) or key.startswith("slot/") or bool(torch.isfinite(value).all()), (t, key)
    state = relaxed.state_dict()
    assert any(key.startswith("factor/") for key in state) and any(key.startswith("loss/") for key in state)
    assert all(np.isfinite(norm) for norm in relaxed.residual_norms().values())
    relaxed.detach()
    return finite


def test_a_worker_that_is_not_finite_once_breaks_nothing_for_ever(pool: Pool) -> None:
    assert pool.run(broken_once, 3) == [[True, False, True, True, True]] * 3


# --- one matrix of a worker, alone


def test_the_host_does_not_ask_a_device_for_any_number() -> None:
    """On a device without memory asking is an error."""
    assert all(made.is_meta for made in exchanged(matrix_on("meta")))


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e15])
def test_numbers_that_are_not_looked_at_are_kept_alike(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from relaxc.attach import low_rank

    looked_at = exchanged(matrix_on("cpu", scale=scale))
    monkeypatch.setattr(low_rank, "HUGE", 0.0)
    unseen = exchanged(matrix_on("cpu", scale=scale))
    for a, b in zip(looked_at, unseen, strict=True):
        assert a.isfinite().all() and a.equal(b)
    largest = looked_at[2].abs().max()
    assert 0.5 <= largest < 1


@pytest.mark.parametrize("worst", [float("nan"), float("inf"), float("-inf")])
def test_what_is_not_finite_is_not_kept(worst: float) -> None:
    matrix = matrix_on("cpu")
    before = [matrix.residual.clone(), matrix.kept.clone()]
    matrix.slot[7] = worst
    slot, *after = exchanged(matrix)
    assert not slot.isfinite().all()
    for old, new in zip(before, after, strict=True):
        assert new.isfinite().all() and (old == new).any()


# --- workers that are not at the same place of the loop

WEIGHTS = """
algorithm l { step  every 2 { let m = mix(weight, ring)  weight = (m + mean(weight, compress = lowrank(2))) / 2 } }
relax with l
"""


def one_asks(rank: int, workers: int) -> list[Any]:
    """Between steps rank 0 alone looks at weights, and the others wait for it; then rank 0 has no more batches."""
    import loops
    import torch
    import torch.distributed as dist

    model = loops.mlp()
    optimizer = loops.sgd(model)
    relaxed = loops.plan(WEIGHTS).attach(model, optimizer, timeout=8)
    with relaxed.join():
        for t in range(4 + 3 * rank):
            loops.step(model, optimizer, rank, t)
            if t < 4 and rank == 0:
                model.state_dict()
            if t < 4:
                dist.barrier()
    relaxed.detach()
    return [bool(torch.isfinite(w).all()) for w in loops.weights(model)]


def test_weights_are_there_for_one_that_asks_alone(pool: Pool) -> None:
    assert all(all(finite) for finite in pool.run(one_asks, 2))


# --- checkpoints


def stopped_and_not(rank: int, workers: int, spec: str) -> None:
    import copy

    import loops
    import torch

    def kit() -> tuple[Any, Any, Any]:
        model = loops.mlp()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return model, optimizer, loops.plan(spec).attach(model, optimizer, timeout=60)

    model, optimizer, relaxed = kit()
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    saved = copy.deepcopy((model.state_dict(), optimizer.state_dict(), relaxed.state_dict()))
    for t in range(3, 6):
        loops.step(model, optimizer, rank, t)
    wanted = [p.clone() for p in model.state_dict().values()]
    relaxed.detach()
    model, optimizer, relaxed = kit()
    model.load_state_dict(saved[0])
    optimizer.load_state_dict(saved[1])
    relaxed.load_state_dict(saved[2])
    for t in range(3, 6):
        loops.step(model, optimizer, rank, t)
    loops.same(list(model.state_dict().values()), wanted)
    relaxed.detach()


@pytest.mark.parametrize("spec", ["gradients", "updates", "momentum"])
def test_resuming_gives_the_same_bits(pool: Pool, spec: str) -> None:
    pool.run(stopped_and_not, 3, SPECS[spec])


def saved_by(rank: int, workers: int) -> dict[str, Any]:
    import loops
    import torch

    model = loops.mlp()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    relaxed = loops.plan(SPECS["gradients"]).attach(model, optimizer, timeout=60)
    for t in range(3):
        loops.step(model, optimizer, rank, t)
    state = {k: v.numpy() if torch.is_tensor(v) else v for k, v in relaxed.state_dict().items()}
    relaxed.detach()
    return state


def loaded_by(rank: int, workers: int, union: dict[str, Any]) -> dict[str, Any]:
    import loops
    import torch

    model = loops.mlp()
    relaxed = loops.attach(SPECS["gradients"], model)
    relaxed.load_state_dict({k: torch.from_numpy(v) if isinstance(v, np.ndarray) else v for k, v in union.items()})
    state = {k: v.numpy() if torch.is_tensor(v) else v for k, v in relaxed.state_dict().items()}
    relaxed.detach()
    return state


def test_another_number_of_workers_keeps_q_and_the_mean_of_what_was_lost(pool: Pool) -> None:
    before = {k: v for state in pool.run(saved_by, 3) for k, v in state.items()}
    after = {k: v for state in pool.run(loaded_by, 2, before) for k, v in state.items()}
    names = {k.rpartition("/")[0] for k in before if k.startswith(("factor/", "loss/"))}
    assert len(names) == 12
    for name in names:
        old, new = ([s[f"{name}/rank{r}"] for r in range(n)] for s, n in ((before, 3), (after, 2)))
        if name.startswith("factor/"):
            assert all(np.array_equal(x, old[0]) for x in (*old, *new)) and np.any(old[0])
        else:
            np.testing.assert_allclose(np.mean(new, axis=0), np.mean(old, axis=0), atol=1e-6)


# --- large and small


def magnitudes(rank: int, workers: int, size: float) -> list[Any]:
    import loops
    import torch

    model = torch.nn.ParameterList([torch.zeros(12, 9)])
    optimizer = torch.optim.SGD(model.parameters(), 0.0)
    relaxed = loops.plan(SPECS["gradients"]).attach(model, optimizer, timeout=60)
    made = []
    for t in range(3):
        model.zero_grad()
        grad = torch.from_numpy(np.random.default_rng([rank, t]).normal(size=(12, 9))).float() * size
        (model[0] * grad).sum().backward()
        made.append(model[0].grad.double().numpy() / size)
        optimizer.step()
    relaxed.detach()
    return made


@pytest.mark.parametrize("size", [1e-20, 1e20, 1e32])
def test_a_scale_changes_nothing_but_the_scale(pool: Pool, size: float) -> None:
    for found, wanted in zip(pool.run(magnitudes, 2, size), pool.run(magnitudes, 2, 1.0), strict=True):
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)
