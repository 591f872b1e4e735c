"""What is said of a spec for a number of workers: by `relaxc check --workers`, `explain --workers`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from relaxc import cli, pipeline
from relaxc.language import library
from relaxc.language.diagnostics import Diagnostic, SpecError
from relaxc.language.report import Report
from relaxc.language.source import Source
from relaxc.program.checks.among import check_among, left_out
from relaxc.program.checks.judged import judge
from relaxc.program.checks.replicas import ASYNC, check_replicas
from relaxc.program.ir import After, Body
from relaxc.topology.graphs import Edges
from relaxc.topology.kinds import metropolis

D2 = "relax with d2"
KNOBS = [
    "relax gradients { compress = 4bit, delay = 2, route = ring }",
    "relax weights", "relax weights { every = 4, delay = 3, topology = torus }", "relax weights { compress = 8bit }",
    "relax weights { compress = 1bit, every = 2, delay = 1, topology = exponential }",
    "relax weights { compress = modulo(8), topology = random_pairs }",
    "relax updates", "relax updates { every = 8, delay = 8, compress = 4bit }", "relax momentum",
]  # fmt: skip
"""Every form that a knob can choose."""


def said(text: str, *workers: int) -> list[str]:
    return [f"{d.severity} {d.code}" for d in diagnostics(text, *workers)]


def diagnostics(text: str, *workers: int) -> tuple[Diagnostic, ...]:
    typed = pipeline.to_typed(pipeline.to_spec(Source("spec", text), {}))
    try:
        return check_among(typed.program, workers)
    except SpecError as error:
        return error.diagnostics


@pytest.mark.parametrize("name", library.specs())
def test_no_false_alarm_of_a_shipped_spec(name: str) -> None:
    spec = library.spec(name)
    assert spec is not None
    typed = pipeline.to_typed(pipeline.to_spec(spec.source, {}))
    assert not [d.code for d in typed.warnings if "RX0369" <= d.code <= "RX0379"]
    assert check_among(typed.program, (2, 4, 8, 16)) == ()


@pytest.mark.parametrize("text", KNOBS)
def test_no_false_alarm_of_a_knob(text: str) -> None:
    assert pipeline.to_typed(pipeline.to_spec(Source("spec", text), {})).warnings == ()
    assert said(text, 4, 8, 16) == []


def test_d2_on_rings() -> None:
    """An even ring is exactly at -1/3, an odd one above, a torus below, and lazy ones are far from it."""
    on_a_ring = D2 + " { topology = ring }"
    assert said(on_a_ring, 3, 5, 7, 63) == []
    assert said(on_a_ring, 4) == said(on_a_ring, 64) == ["warning RX0370"]
    assert said(D2 + " { topology = torus }", 16) == ["error RX0370"]
    assert said(D2, 4, 16) == said(D2 + " { topology = lazy(torus) }", 16) == []
    (found,) = diagnostics(on_a_ring, 8)
    assert found.help == "use lazy(ring), or move by a smaller factor"


def test_a_number_of_workers_replaces_what_holds_for_any() -> None:
    typed = pipeline.to_typed(pipeline.to_spec(Source("spec", D2 + " { topology = ring }"), {}))

    def told(*workers: int) -> list[str]:
        return [d.message for d in pipeline.among(typed, workers).warnings]

    assert told() == ["over ring, what workers disagree about may never die out"]
    assert told(9) == []
    assert told(8) == ["over ring of 8 workers, what they disagree about never dies out"]


def test_machines_are_whole() -> None:
    given = "relax gradients { route = hierarchy(inner = 3), compress = 8bit }"
    assert said(given, 4) == said("relax updates { route = hierarchy(inner = 3) }", 4) == ["error RX0376"]
    assert said(given, 3, 6) == said("relax gradients { route = hierarchy }", 3, 4, 5) == []


def test_two_workers_who_swap(tmp_path: Path) -> None:
    """Bipartite and without weights of their own: -1 is an eigenvalue."""
    (tmp_path / "swap.txt").write_text("0 1 1.0\n")
    text = f'relax weights {{ topology = edges("{tmp_path}/swap.txt") }}'
    assert said(text, 2) == ["warning RX0370"]
    assert said(text.replace("edges", "lazy(edges").replace(") }", ")) }"), 2) == []
    assert said("relax with choco" + text.removeprefix("relax weights"), 2) == []


def test_graphs_that_do_not_fit(tmp_path: Path) -> None:
    (tmp_path / "links.txt").write_text("0 1\n2 3\n")
    text = f'relax weights {{ topology = edges("{tmp_path}/links.txt") }}'
    assert said(text, 4) == ["warning RX0377"]
    assert said(text, 3) == ["error RX0376"]
    assert said("relax weights { topology = hypercube }", 8, 6) == ["error RX0376"]
    assert said("relax weights { topology = torus }", 7) == ["error RX0376"]


def test_pairs_of_an_odd_number_and_one_worker() -> None:
    assert said("relax with swarm_blocking", 5) == ["warning RX0378"]
    assert said("relax with swarm_blocking { topology = shift_one }", 3) == ["warning RX0378"]
    assert said("relax with dpsgd", 5) == []
    assert said("relax with swarm_blocking", 1) == said("relax gradients", 1) == ["warning RX0379"]


def test_a_graph_of_fewer_workers(tmp_path: Path) -> None:
    (tmp_path / "three.txt").write_text("0 1\n1 2\n2 0\n")
    text = f'relax weights {{ topology = shuffled(edges("{tmp_path}/three.txt")) }}'
    assert said(text, 3) == [] and said(text, 4) == ["warning RX0378"]
    (warning,) = diagnostics(text, 4)
    assert "linked" in str(warning) and "pairs" not in str(warning), "four is even, and three of them are no pairs"


def test_rounds_of_which_some_leave_workers_out() -> None:
    """One who rests in a round and meets in the next is not left out."""

    def who(workers: int, *rounds: Edges) -> str | None:
        found = left_out([metropolis(edges, workers) for edges in rounds])
        return found and found[0]

    assert who(3, ((0, 1), (1, 2)), ()) == who(3, (), ((0, 1), (1, 2))) is None
    assert who(3, ((0, 1),), ((1, 2),)) == "one is"
    assert who(4, ((0, 1),), ((1, 2), (2, 3))) == "1 or more are"
    assert who(5, ((0, 1), (1, 2))) == "2 are"


def test_how_far_to_move_towards_what_codes_say() -> None:
    assert said("relax with choco { gamma = 1.27 }") == []
    assert said("relax with choco { gamma = 1.29 }") == ["warning RX0371"]
    assert said("relax with choco { compress = qsgd(8) }") == []
    assert said("relax with choco { compress = qsgd(2), gamma = 0.01 }") == [
        "warning RX0371"
    ]  # loses more than there is
    assert said("relax weights { compress = 2bit, gamma = 1.2 }") == []
    assert "another codec" in str(diagnostics("relax with choco { compress = qsgd(2), gamma = 0.01 }")[0].help), (
        "no auto"
    )


HALVED = """codec halved() {
  per block(64)
  send most: f32 = max(abs(x))
  send level: uint(2) = round(3 * x / most)
  receive = level * most / 3
}
"""
"""Whose negative values all become 0."""


def test_feedback_of_a_codec_that_loses_all() -> None:
    """What it loses is added to the next value, and grows."""
    assert said("relax gradients { compress = signs }") == ["warning RX0383"]
    assert said("relax gradients { compress = signs, feedback = none }") == []
    assert said("relax gradients { compress = onebit(64) }") == said("relax gradients { compress = topk(1%) }") == []
    assert said(HALVED + "relax gradients { compress = halved }") == ["warning RX0383"]
    assert said(HALVED + "relax gradients { compress = halved, feedback = none }") == []


def test_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.relax"
    path.write_text("relax weights { topology = hypercube }\n")
    assert cli.status(["check", str(path)]) == 0
    assert cli.status(["check", str(path), "--workers", "6"]) == 1
    assert "error[RX0376]: no hypercube of 6 workers" in capsys.readouterr().err
    assert cli.status(["check", str(path), "--workers", "8", "--workers", "4"]) == 0
    assert cli.status(["check", str(path), "--workers", "0"]) == 2


# --- under `after async`


def asynchronous(text: str) -> list[str]:
    """The codes, with the first `after` as an asynchronous one."""
    body = pipeline.to_typed(pipeline.to_spec(Source("spec", text), {})).program.bodies[0]
    report = Report()
    check_replicas(judge(_late(body)), report)
    return [d.code for d in report.errors]


def _late(body: Body) -> Body:
    return replace(body, statements=tuple(_turned(s) for s in body.statements))


def _turned(statement: object) -> object:
    if isinstance(statement, After):
        return replace(statement, delay=ASYNC)
    inner = getattr(statement, "body", None)
    return statement if inner is None else replace(statement, body=tuple(map(_turned, inner)))  # type: ignore[type-var]


def test_replicas_need_each_message_in_order() -> None:
    assert asynchronous("relax weights { compress = 4bit, every = 3, delay = 2 }") == ["RX0374", "RX0374"]
    assert asynchronous("relax weights { every = 3, delay = 2 }") == []
    assert asynchronous("relax weights { compress = modulo(8), every = 3, delay = 2 }") == []
    assert asynchronous("relax updates { compress = 4bit, every = 8, delay = 2 }") == []
