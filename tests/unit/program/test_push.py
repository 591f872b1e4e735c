"""Numbers that are exchanged, push, relay: types, refusals, paths."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from drawn_programs import check_agreement

from relaxc import pipeline
from relaxc.language.diagnostics import Diagnostic, SpecError
from relaxc.language.source import Source
from relaxc.program.figures import sent_bytes, sent_in
from relaxc.program.interpret import Interpreter
from relaxc.program.ir import Program
from relaxc.program.passes.paths import to_paths
from relaxc.program.printer import print_program
from relaxc.wire.parameters import Parameter


def algorithm(statements: str, states: str = "") -> str:
    return f"algorithm a() {{ {states}\n {statements} }} relax with a"


def program(text: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def found(text: str) -> tuple[Diagnostic, ...]:
    try:
        return pipeline.to_typed(pipeline.to_spec(Source("spec", text), {})).warnings
    except SpecError as error:
        return error.diagnostics


def codes(text: str) -> list[str]:
    return [d.code for d in found(text)]


# --- cells


@pytest.mark.parametrize("exchange", ["mean(m)", "sum(m)", "mix(m, ring)", "push(m, exponential)", "relay(m, chain)"])
def test_a_state_that_is_given_an_exchanged_number_is_a_cell(exchange: str) -> None:
    (body,) = program(algorithm(f"step m = {exchange} weight *= m", "state m = 1")).bodies
    assert [state.shape for state in body.states] == ["cell"]
    assert [t.shape for t in to_paths(Program((body,))).bodies[0].transfers] == ["cell"]


def test_a_mean_of_numbers_is_the_number() -> None:
    parameter = Parameter(0, "p", (3,), "f32")
    text = algorithm(
        "all_ranks = mean(rank) twice = sum(all_ranks) weight = weight", "state all_ranks = 0 state twice = 0"
    )
    interpreter = Interpreter(program(text), [parameter], 4)
    interpreter.iterate([[np.zeros(3)]] * 4)
    assert [interpreter.states(w, 0) for w in range(4)] == [{"all_ranks": 1.5, "twice": 6.0}] * 4


def test_masses_of_all_add_up_to_the_number_of_workers(tmp_path: Path) -> None:
    """And where links are uneven they come to the eigenvector of the matrix, which value / mass takes out."""
    (tmp_path / "links").write_text("0 1\n1 2\n2 0\n0 2")
    text = f"""algorithm a(graph = arrows("{tmp_path}/links")) {{ state mass = 1  state raw = weight
      raw = push(raw, graph)  mass = push(mass, graph)  weight = raw / mass }} relax with a"""
    assert codes(text) == []
    interpreter = Interpreter(program(text), [Parameter(0, "p", (2,), "f64")], 3)
    for worker in range(3):
        interpreter._stores[0].states["raw"][worker][:] = worker
    for _ in range(80):
        interpreter.iterate([[np.zeros(2)]] * 3)
    masses = [float(interpreter.states(w, 0)["mass"]) for w in range(3)]
    assert sum(masses) == pytest.approx(3)
    np.testing.assert_allclose(masses, [1, 2 / 3, 4 / 3], rtol=1e-12)
    np.testing.assert_allclose([w[0] for w in interpreter.weights], 1.0, rtol=1e-12)


def test_a_cell_that_is_sent_is_known_at_the_start_of_an_iteration() -> None:
    body = to_paths(program("relax with sgp")).bodies[0]
    stages = {stage: [o.kind for o in operations] for stage, operations in body.paths[0].stages}
    assert stages["begin"] == ["compute", "start"]
    assert [(t.shape, t.leaves, t.lands) for t in body.transfers] == [
        ("tensor", "code", "code"),
        ("cell", "slot", "slot"),
    ]


def test_value_and_mass_land_together() -> None:
    body = to_paths(program("relax with osgp { late = 2 }")).bodies[0]
    assert [(t.shape, t.copies, t.after) for t in body.transfers] == [("tensor", 3, 1), ("cell", 3, 1)]
    assert sorted(k.shape for k in body.kept if k.after >= 0) == ["cell", "tensor"]


@pytest.mark.parametrize(
    "spec", ["sgp", "osgp { late = 3 }", "osgp { topology = exponential }", "relaysgd", "relaysgd { topology = star }"]
)
@pytest.mark.parametrize(("workers", "dtype"), [(1, "f64"), (2, "bf16"), (5, "f32")])
def test_paths_mean_the_same(spec: str, workers: int, dtype: str) -> None:
    check_agreement(program(f"relax with {spec}"), workers, 3, dtype)


def test_what_is_printed_of_cells_parses_to_the_same() -> None:
    for spec in ("relax with sgp", "relax with osgp", "relax with relaysgd", algorithm("step weight *= mean(t)")):
        printed = print_program(program(spec))
        (again,) = pipeline.to_typed(pipeline.to_spec(Source("again", printed + "relax with body0"), {})).program.bodies
        assert print_program(Program((again,))) == printed


def test_a_number_costs_nothing_beside_a_million_elements() -> None:
    (body,) = program("relax with sgp").bodies
    assert [sent_bytes(sent, 4) for sent in sent_in(body, "")] == [4e6, 0]


# --- what is refused


def test_cells_are_no_periods() -> None:
    text = algorithm("step n = mean(n) every n { weight = mix(weight, ring) }", "state n = 2")
    (error,) = found(text)
    assert (error.code, error.message) == ("RX0311", "a period that depends on `n`")


def test_a_mix_over_uneven_arrows(tmp_path: Path) -> None:
    (tmp_path / "uneven").write_text("0 1\n1 2\n2 0\n0 2")
    (tmp_path / "even").write_text("0 1\n1 2\n2 0")
    assert codes(f'relax weights {{ topology = arrows("{tmp_path}/uneven") }}') == ["RX0364"]
    assert codes(f'relax weights {{ topology = lazy(arrows("{tmp_path}/uneven")) }}') == ["RX0364"]
    assert codes(f'relax weights {{ topology = arrows("{tmp_path}/even") }}') == []
    (error,) = found(algorithm(f'step weight = mix(weight, arrows("{tmp_path}/uneven"))'))
    assert error.message == "a mix over arrows(4 arrows) does not keep the mean"


PUSHES = {
    "step weight = push(weight, G)": ["RX0362"],
    "step m = push(m, G) weight = push(weight, G)": ["RX0362"],
    "step m = push(m, G) weight = push(weight * m, G) / m": [],
    "step let share = push(m, G) m = share weight = push(weight * m, G) * (1 / share)": [],
    "step m = push(m, G) let s = m ^ -1 weight = push(weight, G) * s": [],
}


@pytest.mark.parametrize("statements", PUSHES)
def test_a_push_without_its_mass(statements: str, tmp_path: Path) -> None:
    (tmp_path / "links").write_text("0 1\n1 2\n2 0\n0 2")
    text = algorithm(statements.replace("G", f'arrows("{tmp_path}/links")'), "state m = 1")
    assert [code for code in codes(text) if code != "RX0110"] == PUSHES[statements]
    assert "RX0362" not in codes(algorithm(statements.replace("G", "exponential"), "state m = 1"))


def test_sums_of_pushes_over_what_changes() -> None:
    text = algorithm("step s += push(weight, one_peer_exponential) weight = s", "state s = 0")
    assert codes(text) == ["RX0314"]
    assert codes(text.replace("one_peer_exponential", "exponential")) == []
    assert codes("relax with osgp") == []


def test_late_pushes_of_weights_diverge_as_late_mixes_do() -> None:
    text = algorithm("let m = push(weight, ring) - weight after 1 { weight += m } step")
    assert codes(text) == codes(text.replace("push", "mix")) == ["RX0330"]


@pytest.mark.parametrize(
    ("relay", "code"),
    [
        ("relay(weight, chain)", None), ("relay(weight, ring)", "RX0365"), ("relay(weight, lazy(chain))", "RX0365"),
        ("relay(weight, chain, compress = 8bit)", "RX0190"), ("relay(encode(weight, 8bit), chain)", "RX0190"),
    ],
)  # fmt: skip
def test_relays_are_of_plain_values_over_trees(relay: str, code: str | None) -> None:
    assert codes(algorithm(f"step weight = {relay} / workers")) == ([] if code is None else [code])


def test_gradients_that_are_pushed_are_never_averaged_and_relayed_ones_are() -> None:
    assert codes(algorithm("grad = push(grad, ring) step")) == ["RX0332"]
    assert codes(algorithm("grad = relay(grad, chain) / workers step")) == []


def test_an_edges_file_is_a_tree_or_is_refused(tmp_path: Path) -> None:
    for text, wanted in (("0 1\n1 2", []), ("0 1\n1 2\n2 0", ["RX0365"]), ("0 1\n2 3", ["RX0365"])):
        (tmp_path / "links").write_text(text)
        assert codes(algorithm(f'step weight = relay(weight, edges("{tmp_path}/links")) / workers')) == wanted


def test_mistakes_in_a_file_of_arrows(tmp_path: Path) -> None:
    (tmp_path / "links").write_text("0 1 0.9\n0 2 0.9")
    text = algorithm(f'step weight = push(weight, arrows("{tmp_path}/links"))')
    (error,) = found(text)
    assert error.code == "RX0213" and "line 2" in error.message and "0.9" not in (error.help or "")
    assert [d.code for d in found(algorithm('step weight = push(weight, arrows("no/such")) '))] == ["RX0213"]
    assert [d.code for d in found(algorithm("step weight = push(weight, arrows)"))] == ["RX0107"]
