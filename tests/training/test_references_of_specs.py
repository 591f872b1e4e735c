"""Every spec of the library against an independent implementation: tests/references/NAME.py, plain torch in float64 on
simulated workers, which shares no code with relaxc. What is drawn at random, the mixing matrices and who sums what are injected.

To 1e-9, after each of 50 steps, in real processes.
"""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest
from pool import Pool
from reference_runs import Weights, close, reference, simulated, text_of, with_links
from references.harness.team import STEPS, Setup, problem, rate, setup, start
from references.harness.variants import FIVE, UNEVEN, VARIANTS

from relaxc.resources import folder

REFERENCES = Path(__file__).parents[1] / "references"
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
ASYNCHRONOUS = {"adpsgd", "async_average", "async_bytegrad", "swarm", "swarm_8bit"}
"""What their workers come to depends on who arrives when: unit/program/test_asynchronous.py scripts that, against
references/asynchronous.py, and attach/test_async_replay.py takes it from a record of real processes."""
KNOWN = sorted(path.stem for path in REFERENCES.glob("*.py") if path.stem != "asynchronous")

RUNS = [
    (name, workers)
    for name in SPECS
    if name in KNOWN or name not in ASYNCHRONOUS
    for workers in (2, 4, 5)
    if workers < 5 or name in FIVE
]
"""conformance/test_programs.py holds real workers to the interpreter in all numbers from 1 to 5."""

# --- real workers


def train(rank: int, workers: int, spec: str, of: Setup, inner: int) -> list[list[Any]]:
    """The plan at work: the weights after each step."""
    import torch

    model = torch.nn.ParameterList([start(number, shape) for number, shape in enumerate(of.shapes)])
    optimizer = torch.optim.SGD(model.parameters(), rate(0), momentum=of.momentum, weight_decay=of.decay)
    relaxed = attached(spec, model, optimizer, inner)
    problems = [problem(rank, number, shape) for number, shape in enumerate(of.shapes)]
    made = []
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        optimizer.zero_grad()
        sum(
            ((a * (w - b) ** 2).sum() / 2 for w, (a, b) in zip(model, problems, strict=True)), torch.tensor(0)
        ).backward()
        optimizer.step()
        model.state_dict()  # whoever reads the weights sees them complete
        made.append([weight.detach().clone().numpy() for weight in model])
    relaxed.detach()
    return made


def attached(spec: str, model: Any, optimizer: Any, inner: int) -> Any:
    """With `inner` workers on each machine, as torchrun tells, unless it is 0."""
    import relaxc

    told = {"LOCAL_WORLD_SIZE": str(inner)} if inner else {}
    os.environ.update(told)
    try:
        return relaxc.compile(spec).attach(model, optimizer, timeout=60)
    finally:
        for name in told:
            del os.environ[name]


# --- the tests


def same(pool: Pool, spec: str, of: Any, settings: dict[str, Any], workers: int, inner: int = 0) -> None:
    close(pool.run(train, workers, spec, setup(of), inner), simulated(spec, of, settings, workers))


@pytest.mark.parametrize(("name", "workers"), RUNS)
def test_a_spec_trains_as_its_paper_says(pool: Pool, name: str, workers: int) -> None:
    assert name in KNOWN, f"write tests/references/{name}.py: an implementation of the paper in plain torch"
    of = reference(name)
    same(pool, text_of(name), of, getattr(of, "SETTINGS", {}), workers)


@pytest.mark.parametrize(("variant", "workers"), [(name, n) for name, of in VARIANTS.items() for n in of.workers])
def test_and_with_other_arguments(pool: Pool, variant: str, workers: int, tmp_path: Path) -> None:
    this = VARIANTS[variant]
    spec = with_links(this.text, this.links, tmp_path)
    same(pool, spec, reference(this.of), this.settings, workers, this.inner)


def test_every_reference_has_a_spec_and_nobody_waits_for_what_is_there() -> None:
    assert set(KNOWN) <= set(SPECS), f"references of nothing: {set(KNOWN) - set(SPECS)}"
    assert not ASYNCHRONOUS & set(KNOWN), (
        f"they have their references, so take them off ASYNCHRONOUS: {ASYNCHRONOUS & set(KNOWN)}"
    )


def test_no_reference_imports_relaxc() -> None:
    for path in REFERENCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {name.split(".")[0] for name in names}
            assert roots <= {
                "__future__",
                "collections",
                "dataclasses",
                "math",
                "typing",
                "torch",
                "numpy",
                "references",
            }, path


# --- that the tolerance separates a rule from its neighbours


def test_a_rule_that_is_slightly_wrong_is_noticed() -> None:
    """dpsgd from its adapt-then-combine form."""
    one, other = (simulated("dpsgd", reference(name), {}, 3) for name in ("dpsgd", "dpsgd_atc"))
    assert apart(one, other) > 1e-3


def test_other_machines_give_another_result() -> None:
    one, other = (simulated("hierarchical", reference("hierarchical"), {"inner": inner}, 4) for inner in (1, 2))
    assert apart(one, other) > 1e-6


def test_a_push_without_its_mass_is_noticed(tmp_path: Path) -> None:
    text = with_links('relax with sgp { topology = arrows("LINKS") }', UNEVEN[4], tmp_path)
    one, other = simulated(text, reference("sgp"), {}, 4), simulated(text, reference("dpsgd_atc"), {}, 4)
    assert apart(one, other) > 1e-2


def apart(one: Weights, other: Weights) -> float:
    """At the end, in the first worker's first parameter."""
    return float((one[0][-1][0] - other[0][-1][0]).abs().max())


@pytest.mark.parametrize("workers", VARIANTS["near"].workers)
def test_some_blocks_of_moniqua_are_beyond_its_range_and_some_are_not(workers: int) -> None:
    this, block = VARIANTS["near"], 512
    made = simulated(this.text, reference("moniqua"), this.settings, workers)
    far = set()
    for one, other in zip(made[0], made[1], strict=True):
        parts = (one[0] - other[0]).flatten().abs().split(block)
        far.add(tuple(bool(part.max() > 127 * this.settings["unit"]) for part in parts))
    assert any(any(blocks) and not all(blocks) for blocks in far)
    assert any(not any(blocks) for blocks in far)
