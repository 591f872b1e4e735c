"""Tasks: those that come with relaxc, and what is said of a user's that can't be one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relaxc.errors import ModelError
from relaxc.simulate.digits import SHAPES, Digits
from relaxc.simulate.quadratic import Quadratic
from relaxc.simulate.task import load_task
from relaxc.usage import UsageError


@pytest.mark.parametrize("name", ["digits", "quadratic"])
def test_all_gradients_are_each_workers(name: str) -> None:
    task = load_task(name, 3, 5)
    draw = np.random.default_rng(0)
    weights = [draw.normal(size=(3, p.elements)).astype(np.float32) for p in task.parameters]
    at_once = task.gradients(2, weights)
    for worker in range(3):
        alone = task.gradient(worker, 2, [rows[worker] for rows in weights])
        for rows, row in zip(at_once, alone, strict=True):
            np.testing.assert_allclose(rows[worker], row, rtol=1e-5, atol=1e-6)


def test_gradients_of_digits_are_those_of_the_loss() -> None:
    """By differences in f64 on one batch, whose loss is written out here."""
    from relaxc.simulate.digits import samples

    task = Digits(2, 1)
    images, labels, _, _ = samples()
    chosen = task.batch(1, 4)

    def loss(weights: dict[str, np.ndarray]) -> float:
        hidden = np.maximum(images[chosen] @ weights["hidden.weight"] + weights["hidden.bias"], 0)
        scores = hidden @ weights["out.weight"] + weights["out.bias"]
        picked = scores[np.arange(len(chosen)), labels[chosen]]
        return float((np.log(np.exp(scores).sum(axis=1)) - picked).mean())

    weights = {name: w.astype(np.float64) for name, w in task.weights().items()}
    made, draw = task.gradient(1, 4, weights), np.random.default_rng(2)
    assert {name: g.shape for name, g in made.items()} == SHAPES
    direction = {name: draw.normal(size=w.shape) for name, w in weights.items()}
    ahead, back = ({n: w + s * 1e-5 * direction[n] for n, w in weights.items()} for s in (1, -1))
    slope = sum(float((made[n] * direction[n]).sum()) for n in weights)
    assert (loss(ahead) - loss(back)) / 2e-5 == pytest.approx(slope, rel=1e-4)


def test_the_quadratic_has_its_minimum_where_it_says() -> None:
    task = Quadratic(4, 3)
    x = {"x": np.tile(task.minimum.astype(np.float32), (4, 1))}
    assert np.abs(task.gradients(0, x)["x"].mean(axis=0)).max() < 1e-6
    assert task.loss({"x": task.minimum}) == 0 and task.loss(dict(task.weights())) > 0


MODULE = """
import numpy as np
class Task:
    def __init__(self, workers, seed): pass
    def weights(self): return {"w": np.zeros(3, np.float32)}
    def gradient(self, worker, iteration, weights): return {"w": weights["w"] - worker}
    def loss(self, weights): return float((weights["w"] ** 2).sum())
class Raises(Task):
    def __init__(self, workers, seed):
        raise RuntimeError("no data")
class Lossless:
    def __init__(self, workers, seed): pass
    def weights(self): return {}
    def gradient(self, worker, iteration, weights): return {}
class Empty(Task):
    def weights(self): return {}
class Whole(Task):
    def weights(self): return {"w": np.zeros(3, np.int64)}
class Misshapen(Task):
    def gradient(self, worker, iteration, weights): return {"w": np.zeros(4)}
class Absent(Task):
    def gradient(self, worker, iteration, weights): return {}
class Fails(Task):
    def gradient(self, worker, iteration, weights):
        return weights["v"]
class Wordy(Task):
    def loss(self, weights): return "low"
class Leaves(Task):
    def loss(self, weights): raise SystemExit(0)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "tasks_of_a_user.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "tasks_of_a_user"


def test_a_task_of_a_user(module: str) -> None:
    task = load_task(f"{module}:Task", 2, 0)
    assert [(p.name, p.shape, p.dtype) for p in task.parameters] == [("w", (3,), "f32")]
    (grads,) = task.gradients(0, [np.ones((2, 3), np.float32)])
    assert grads.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert task.loss([np.full(3, 2.0)]) == 12.0 and task.setting("rate", 0.25) == 0.25


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("Raises", "RX0451", r"RuntimeError: no data \(.*tasks_of_a_user.py:10\)"),
        ("Nothing", "RX0451", "has no attribute 'Nothing'"),
        ("Lossless", "RX0451", r"without loss\(\)"),
        ("Empty", "RX0452", "has no weights"),
        ("Whole", "RX0452", "w of .* is of int64"),
    ],
)
def test_what_is_no_task(module: str, name: str, code: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        load_task(f"{module}:{name}", 2, 0)
    assert caught.value.code == code and caught.value.help


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("Misshapen", "RX0452", r"no gradient of w, but one of shape \(4,\)"),
        ("Absent", "RX0452", "no gradient of w, but none"),
        ("Fails", "RX0451", r"KeyError: 'v' \(.*tasks_of_a_user.py:25\)"),
    ],
)
def test_gradients_that_are_none(module: str, name: str, code: str, said: str) -> None:
    task = load_task(f"{module}:{name}", 2, 0)
    with pytest.raises(ModelError, match=said) as caught:
        task.gradients(0, [np.zeros((2, 3), np.float32)])
    assert caught.value.code == code


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [("Wordy", "RX0452", "gave a str, not a number"), ("Leaves", "RX0451", "loss of .* failed: SystemExit")],
)
def test_losses_that_are_none(module: str, name: str, code: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as caught:
        load_task(f"{module}:{name}", 2, 0).loss([np.zeros(3, np.float32)])
    assert caught.value.code == code


def test_what_names_no_task() -> None:
    with pytest.raises(UsageError, match="digits, quadratic"):
        load_task("digit", 2, 0)
