"""Trainings: against closed forms, with a specification of every kind, and what is said of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from relaxc import cli, pipeline
from relaxc.errors import ModelError
from relaxc.language.source import Source
from relaxc.program.types import Typed
from relaxc.schedule.network_text import parse_network
from relaxc.simulate import plot
from relaxc.simulate.descent import Descent
from relaxc.simulate.outcome import Curve, verdicts
from relaxc.simulate.pace import seconds_of_iteration
from relaxc.simulate.quadratic import Quadratic
from relaxc.simulate.run import Look, Training, train, turns
from relaxc.simulate.task import load_task
from relaxc.wire.parameters import Parameter

EXACT = "relax gradients"
RING = "relax weights { topology = ring }"
ASYNC = "algorithm a() { step  let m = mix(weight, ring)  let own = weight  after async { weight += m - own } } relax with a"


def typed(text: str) -> Typed:
    return pipeline.to_typed(pipeline.to_spec(Source("t.relax", text), {}))


def trained(text: str, workers: int = 4, iterations: int = 40, **given: Any) -> Training:
    task = load_task("quadratic", workers, 0)
    return train(typed(text).program, task, workers, iterations, 0, Descent(0.5), **given)


def test_exact_averaging_leaves_what_it_must() -> None:
    task, rate = Quadratic(4, 0), 0.5
    for look in trained(EXACT).looks:
        left = (1 - rate * task.curvatures.astype(np.float64)) ** look.iterations * task.minimum
        assert look.loss == pytest.approx(0.5 * (task.curvatures * left * left).sum(), rel=1e-3, abs=1e-9)
        assert look.apart == 0


def test_workers_of_a_ring_are_as_far_apart_as_the_fixed_point_says() -> None:
    """x = W (x - r c (x - b)), dpsgd's step and mix, solved for each element."""
    task, rate = Quadratic(4, 0), 0.5
    matrix = np.array([[1, 1, 0, 1], [1, 1, 1, 0], [0, 1, 1, 1], [1, 0, 1, 1]]) / 3
    last = trained(RING, iterations=400).looks[-1]
    fixed = []
    for c, b in zip(task.curvatures.astype(np.float64), task.minima.T.astype(np.float64), strict=True):
        fixed.append(np.linalg.solve(np.eye(4) - matrix * (1 - rate * c), rate * c * matrix @ b))
    x = np.array(fixed)
    assert last.apart == pytest.approx(np.sqrt(((x - x.mean(axis=1, keepdims=True)) ** 2).mean()), rel=1e-3)


@pytest.mark.parametrize("text", [EXACT, "relax gradients { compress = 4bit }", RING])
def test_a_thousand_workers(text: str) -> None:
    """All at once: those on a ring end as near to the mean as the ring lets them."""
    looks = trained(text, workers=1024, iterations=12).looks
    assert looks[-1].loss < looks[0].loss / 4
    assert (looks[-1].apart == 0) == (text != RING)


def test_progress_is_told() -> None:
    told: list[int] = []
    trained(EXACT, iterations=7, progress=told.append)
    assert told == [1, 2, 3, 4, 5, 6, 7]


def test_a_rate_too_large_ends_early() -> None:
    task = load_task("quadratic", 2, 0)
    with np.errstate(all="ignore"):
        training = train(typed(EXACT).program, task, 2, 2000, 0, Descent(50.0))
    assert training.diverged and training.looks[-1].iterations < 2000


@pytest.mark.parametrize("workers", [1, 4])
def test_workers_at_their_own_pace(workers: int) -> None:
    first, last = (trained(ASYNC, workers).looks[i] for i in (0, -1))
    assert last.iterations == 40 and last.loss < 0.2 * first.loss


@pytest.mark.parametrize("text", [
    "relax weights { delay = async(max = 1) }",
    "relax weights { delay = async(max = 2), topology = random_pairs }",
    "relax weights { delay = async(max = 3), every = 4 }",
    "relax with async_average { late = async(max = 3) }",
    "algorithm a { step  every 2 { weight += delay(mean(weight) - weight, async(max = 3)) } } relax with a",
])  # fmt: skip
@pytest.mark.parametrize("workers", [2, 3])
def test_workers_that_may_be_so_late_at_most(text: str, workers: int) -> None:
    """Who is ahead lands no launch that the others have yet to make."""
    first, last = (trained(text, workers).looks[i] for i in (0, -1))
    assert last.iterations == 40 and last.loss < 0.3 * first.loss


def test_what_is_launched_beside_a_mean() -> None:
    text = ASYNC.replace("step", "grad = mean(grad) step")
    assert trained(text).looks[-1].loss == pytest.approx(trained(EXACT).looks[-1].loss, rel=1e-3)


def test_turns_are_as_many_for_all() -> None:
    found = turns(5, 20, 1)
    assert sorted(found) == sorted(list(range(5)) * 20) and found != sorted(found)
    assert found.index(0) < found.index(4)


def test_an_optimiser_that_is_not_there() -> None:
    text = "algorithm a() { step  weight -= 0.1 * optimizer.exp_avg } relax with a"
    with pytest.raises(ModelError, match=r"RX0450.*no `optimizer\.exp_avg`"):
        trained(text)


def test_momentum_is_torchs() -> None:
    import torch

    rule, weight = Descent(0.1, 0.9), np.ones((1, 3), np.float32)
    held = torch.nn.Parameter(torch.ones(3))
    theirs = torch.optim.SGD([held], 0.1, momentum=0.9)
    for step in range(5):
        grad = np.array([[1.0, -2.0, step]], np.float32)
        held.grad = torch.tensor(grad[0])
        theirs.step()
        weight = rule.step_rows(Parameter(0, "w", (3,), "f32"), weight, grad)
    np.testing.assert_allclose(weight[0], held.detach().numpy(), rtol=1e-6)


# --- time

MILLION = [Parameter(0, "w", (1_000_000,), "f32")]


def pace(text: str, workers: int = 4, network: str = "1Gbps, 100us", computation: float = 0.01) -> float:
    return seconds_of_iteration(typed(text), MILLION, workers, parse_network(network), computation)


def test_seconds_of_an_iteration() -> None:
    whole, link = 4e6, 8e-9
    assert pace(EXACT) == pytest.approx(0.01 + 6 * 100e-6 + 1.5 * whole * link)
    assert pace(EXACT, workers=1) == 0.01
    assert pace(EXACT, network="1Gbps, 100us, per_machine=2") == pytest.approx(0.01 + 6e-4 + 3 * whole * link)
    assert pace("relax gradients { delay = 1 }", computation=0.1) == 0.1
    assert pace("relax gradients { delay = 1 }") == pytest.approx(6e-4 + 1.5 * whole * link)
    assert pace(ASYNC) == 0.01
    code = 1_000_000 + 8 * -(-1_000_000 // 512)
    assert pace("relax gradients { compress = 8bit }") == pytest.approx(0.01 + 2e-4 + 1.5 * code * link, rel=1e-3)
    assert pace("relax updates { every = 10 }") == pytest.approx(0.01 + (6e-4 + 1.5 * whole * link) / 10)


# --- verdicts

LOOKS = (Look(0, 8.0, 0.0), Look(10, 4.0, 0.0), Look(20, 2.0, 0.5))


def curve(name: str, losses: list[float], seconds: float | None = None) -> Curve:
    looks = tuple(Look(10 * n, loss, 0.25) for n, loss in enumerate(losses))
    return Curve(name, (Training(looks),), seconds)


def test_where_a_loss_is_first_reached() -> None:
    one = Curve("a", (Training(LOOKS), Training(LOOKS[:2])), None)
    assert one.points == [(0, 8.0, 8.0, 8.0), (10, 4.0, 4.0, 4.0)]
    assert curve("a", [8, 4, 2]).reached(3.0) == 15.0 and curve("a", [8, 4, 2]).reached(1.0) is None
    assert curve("a", [8, 4]).reached(9.0) == 0.0


def test_who_is_faster() -> None:
    quick, exact = curve("q", [8, 5, 3, 2], 0.1), curve("e", [8, 4, 2, 1], 0.5)
    said = verdicts([quick, exact])
    assert said[0] == "q: the loss goes from 8 to 2; workers end 0.25 apart"
    assert said[2] == "a loss of 2 takes q 30 iterations and e 20; over this network 3 s and 10 s: q is 3.33x faster"
    assert "network" not in verdicts([curve("q", [8, 2]), curve("e", [8, 1])])[2]
    assert verdicts([curve("q", [8, 2], 1.0), curve("e", [8, 2], 1.0)])[2].endswith("no difference")


def test_what_does_not_converge() -> None:
    assert verdicts([curve("a", [1, 2])])[0].startswith("a: the loss does not converge: it goes from 1 to 2;")
    assert "from 3 to 2, up from 1;" in verdicts([curve("a", [3, 1, 2])])[0]
    assert "up" not in verdicts([curve("a", [3, 1.9, 2])])[0]
    said = verdicts([curve("a", [1, float("nan")]), curve("e", [1, 0.5])])
    assert said[0] == "a diverges: its loss is no number after 10 iterations" and len(said) == 2


# --- files and the command


@pytest.mark.parametrize(
    ("kind", "start"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF"), (".html", b"<!doctype")]
)
def test_pictures(kind: str, start: bytes) -> None:
    pytest.importorskip("matplotlib")
    curves = [curve("a", [8, 4, 2], 0.1), Curve("b", (Training(LOOKS),) * 2, 0.5)]
    made = plot.made(kind, curves, ["a < b"], "t & u")
    assert made.startswith(start)
    if kind == ".html":
        page = made.decode()
        assert "a &lt; b" in page and "t &amp; u" in page and "<svg" in page
        assert "<script" not in page and 'href="http' not in page and "src=" not in page
    if kind == ".svg":
        assert made == plot.made(kind, curves, [], "t & u")


def test_numbers() -> None:
    made = json.loads(plot.made(".json", [curve("a", [8, float("inf")], 0.1)], ["said"], "t"))
    assert made["curves"] == [
        {"name": "a", "seconds_of_an_iteration": 0.1, "seeds": [[[0, 8.0, 0.25], [10, None, 0.25]]]}
    ]


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ModelError, match="RX0453") as caught:
        plot.refuse_file(tmp_path / "a.png")
    assert "relaxc[plot]" in (caught.value.help or "")
    plot.refuse_file(tmp_path / "a.json")


def status(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(cli.status(["simulate", *map(str, arguments)]))
    return int(ended.value.code or 0)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, spec = tmp_path / "out.json", tmp_path / "s.relax"
    spec.write_text("param width = 8bit\nrelax gradients { compress = width }\n")
    given = ("--task", "quadratic", "--workers", 4, "--iterations", 30, "--against", "allreduce", "--seeds", 2)
    assert status(spec, *given, "--network", "100Mbps, 1ms", "--set", "width=4bit", "-o", output) == 0
    out = capsys.readouterr().out
    assert "predicted time, s" in out and "o s   + allreduce" in out and f"{output}: written" in out
    made = json.loads(output.read_text())
    assert [c["name"] for c in made["curves"]] == ["s", "allreduce"]
    assert [len(c["seeds"]) for c in made["curves"]] == [2, 2]
    assert made["curves"][1]["seconds_of_an_iteration"] > made["curves"][0]["seconds_of_an_iteration"]


def test_a_cluster_says_the_workers_and_the_network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "s.relax"
    spec.write_text("cluster { workers = 4, bandwidth = 1Gbps }\nrelax gradients\n")
    assert status(spec, "--task", "quadratic", "--iterations", 3) == 0
    out = capsys.readouterr().out
    assert "quadratic, 4 workers" in out and "an iteration over 1 Gbit/s, 50 us, 4 workers" in out
    assert status(spec, "--task", "quadratic", "--iterations", 3, "--workers", 6) == 1
    assert "is of 4 workers, not of 6" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "--workers 16"),
        (("--workers", 4, "-o", "a.jpg"), 2, "-o takes a name that ends with"),
        (("--workers", 4, "-o", "/absent/a.json"), 2, "there is no folder"),
        (("--workers", 4, "--network", "0Gbps"), 1, "RX0440"),
        (("--workers", 4, "--computation", -1), 2, "seconds from 0 up"),
        (("--workers", 4, "--against", "nothing"), 2, "there is no file 'nothing'"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status("allreduce", "--task", "quadratic", *arguments) == code
    assert said in capsys.readouterr().err


def test_a_topology_that_so_many_workers_cant_have(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = tmp_path / "s.relax"
    spec.write_text("relax weights { topology = hypercube }\n")
    assert status(spec, "--task", "quadratic", "--workers", 6) == 1
    assert "hypercube" in capsys.readouterr().err
