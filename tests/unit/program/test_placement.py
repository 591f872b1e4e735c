"""When exchanges start and are waited for, and what the plan says of it."""

from __future__ import annotations

import pytest

from relaxc.language.check import check
from relaxc.language.parse import parse
from relaxc.language.source import Source
from relaxc.program.lower import lower
from relaxc.program.passes.paths import to_paths
from relaxc.program.paths import Path, PathBody


def body(text: str) -> PathBody:
    return to_paths(lower(check(parse(Source("spec", text)), {}))).bodies[0]


def algorithm(statements: str, states: str = "") -> PathBody:
    return body(f"algorithm a() {{ {states}\n {statements} }} relax with a")


def placed(path: Path) -> list[tuple[str, str]]:
    """Stage and kind of every operation."""
    return [(stage, operation.kind) for stage, operations in path.stages for operation in operations]


def whys(path: Path, kind: str) -> list[str]:
    return [o.why for _, operations in path.stages for o in operations if o.kind == kind]


def test_a_mix_of_weights_runs_beside_forward_and_backward() -> None:
    (path,) = body("relax with dpsgd").paths
    assert placed(path) == [("begin", "compute"), ("begin", "start"), ("before", "finish"), ("before", "compute")]
    assert whys(path, "start") == ["reads weights only: runs beside forward and backward"]
    assert path.steps


def test_a_mix_of_what_the_optimiser_made_is_waited_for_at_the_next_forward() -> None:
    (path,) = body("relax with dpsgd_atc").paths
    assert placed(path) == [("after", "compute"), ("after", "start"), ("tail", "finish"), ("tail", "compute")]
    assert whys(path, "finish") == ["weights are needed at the next forward"]


def test_gradients_are_done_when_backward_returns() -> None:
    track = "track = mix(track, ring) + grad - last  last = grad  grad = track  step"
    (path,) = algorithm(track, "state track = 0  state last = 0").paths
    assert placed(path) == [("begin", "compute"), ("begin", "start"), ("backward", "finish"), ("backward", "compute")]
    assert whys(path, "start") == ["reads states only: runs beside forward and backward"]


def test_what_reads_gradients_does_not_begin_early() -> None:
    (path,) = algorithm("a = mix(weight - grad, ring)  step", "state a = 0").paths
    assert placed(path)[0] == ("before", "compute")


@pytest.mark.parametrize(
    "statements",
    ["weight = mix(lr * weight, ring)  step", "a = grad  weight = mix(weight + a, ring)  step",
     "weight = mix(weight, ring, compress = 4bit, feedback = worker)  step"],
    ids=["learning rate", "state of this iteration", "feedback"],
)  # fmt: skip
def test_what_does_not_begin_early(statements: str) -> None:
    (path,) = algorithm(statements, "state a = weight").paths
    assert "begin" not in dict(path.stages)


def test_begin_changes_no_state() -> None:
    """A checkpoint between two iterations holds what the second begins with."""
    text = (
        "let q = encode(weight - seen, 4bit)  seen += decode(q)  around += mix(q, ring)  weight += around - seen  step"
    )
    made = algorithm(text, "state seen = 0  state around = 0")
    (path,) = made.paths
    targets = {s.target for o in path.stage("begin") if o.kind == "compute" for s in made.fragments[o.number].stores}
    assert targets == {"kept.0"}


def test_exchanges_that_are_known_leave_before_anything_is_waited_for() -> None:
    made = algorithm("step  let u = mean(weight)  weight = u + mean(a)  a = mean(u)", "state a = weight")
    kinds = [kind for _, kind in placed(made.paths[0]) if kind != "compute"]
    assert kinds == ["start", "start", "finish", "start", "finish", "finish"]


def test_the_tail_does_not_read_gradients() -> None:
    """They may be gone by then: the user's zero_grad comes first."""
    made = algorithm("let g = grad  weight -= lr * g  weight = mix(weight, ring) - g")
    keeping, using = (made.fragments[o.number] for _, s in made.paths[0].stages for o in s if o.kind == "compute")
    assert [s.target for s in keeping.stores] == ["kept.0"]
    assert [s.target for s in using.stores] == ["weight"]


def test_a_result_that_nobody_reads_is_waited_for_all_the_same() -> None:
    made = algorithm(
        "step  every 2 { let u = mean(weight, compress = 1bit, feedback = both)  a = weight }", "state a = 0"
    )
    running = next(p for p in made.paths if p.guards == (True,))
    assert ("tail", "finish") in placed(running)


def test_late_results_are_waited_for_where_they_land() -> None:
    made = body("relax weights { every = 3, delay = 2 }")
    landing = next(p for p in made.paths if p.guards == (False, True))
    assert placed(landing) == [("tail", "finish"), ("tail", "compute")]
    assert whys(landing, "finish") == ["it was launched in an earlier iteration and lands here"]


def test_without_a_gradient_that_has_landed_the_optimiser_does_not_step() -> None:
    made = algorithm("let g = 2 * mean(grad)  after 2 { grad = g }  step")
    assert {path.guards: path.steps for path in made.paths} == {(True,): True, (False,): False}


def test_a_path_without_step_does_its_update_behind_the_cut() -> None:
    dense, compressed = body("relax with one_bit_adam").paths
    assert [stage for stage, _ in dense.stages] == ["backward", "after"]
    assert [stage for stage, _ in compressed.stages] == ["after", "tail"]
    assert not dense.steps
