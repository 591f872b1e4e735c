"""Every spec of the library against an independent implementation: tests/references/NAME.py, plain torch in float64 on
simulated workers, which shares no code with relaxc. What is drawn at random, the mixing matrices and who sums what are injected.

To 1e-9, after each of 50 steps, in real processes.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pool import Pool
from references.harness.codes import minmax
from references.harness.team import MOMENTUM, SHAPES, STEPS, Given, problem, rate, simulate, start

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.ir import Assign, Encode, Every, Exchange, Let, Program, flattened, within
from relaxc.resources import folder
from relaxc.topology.weights import weights as mixing_weights
from relaxc.wire.dither import EVERYONE, message_key, parameter_keys
from relaxc.wire.draws import geometric, head_start
from relaxc.wire.layout import Layout
from relaxc.wire.low_rank import first_q
from relaxc.wire.ownership import shares

REFERENCES = Path(__file__).parents[1] / "references"
SPECS = sorted(path.stem for path in folder("specs").glob("*.relax"))
ASYNCHRONOUS = {"adpsgd", "async_average", "async_bytegrad", "swarm", "swarm_8bit"}
"""What their workers come to depends on who arrives when: unit/program/test_asynchronous.py scripts that, against
references/asynchronous.py, and attach/test_async_replay.py takes it from a record of real processes."""
WAITING = {"demo", "dgc", "random_k", "sparta", "topk"} | ASYNCHRONOUS
"""Specs that may come before their references. Whoever brings a reference takes its name off this list."""
KNOWN = sorted(
    path.stem for path in REFERENCES.glob("*.py") if path.stem != "asynchronous" and not path.stem.startswith("test_")
)

VARIANTS = {
    "late": ("relax gradients { delay = 3 }", "delayed_sgd", {"late": 3}),
    "4bit worker": ("relax gradients { compress = 4bit, feedback = worker }", "double_squeeze",
                    {"code": lambda x: minmax(4, x), "owner_remembers": False}),
    "slow momentum": ("relax with slowmo { period = 5, beta = 0.8, alpha = 0.7 }", "slowmo",
                      {"period": 5, "beta": 0.8, "alpha": 0.7}),
    "stiff springs": ("relax with easgd { period = 1, beta = 0.5 }", "easgd", {"period": 1, "beta": 0.5}),
    "gamma": ("relax with deepsqueeze { gamma = 0.2, topology = complete }", "deepsqueeze", {"gamma": 0.2}),
}  # fmt: skip
"""Other arguments: the text, whose reference, its settings."""


# --- real workers


def train(rank: int, workers: int, spec: str, momentum: float) -> list[list[Any]]:
    """The plan at work: the weights after each step."""
    import torch

    import relaxc

    model = torch.nn.ParameterList([start(number) for number in range(len(SHAPES))])
    optimizer = torch.optim.SGD(model.parameters(), rate(0), momentum=momentum)
    relaxed = relaxc.compile(spec).attach(model, optimizer, timeout=60)
    problems = [problem(rank, number) for number in range(len(SHAPES))]
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


# --- what is injected


def program_of(spec: str) -> Program:
    text = spec if " " in spec else (folder("specs") / f"{spec}.relax").read_text()
    return pipeline.to_program(pipeline.to_spec(Source("spec", text), {}))


def exchanges(program: Program) -> Iterator[Exchange | Encode]:
    for body in program.bodies:
        for statement in flattened(body.statements):
            if isinstance(statement, Let | Assign):
                yield from (e for e in within(statement.value) if isinstance(e, Exchange | Encode))


def given(program: Program, workers: int, number: int) -> Given:
    import torch

    found = list(exchanges(program))
    topology = next((e.topology for e in found if isinstance(e, Exchange) and e.topology is not None), None)
    codec, place = next(((e.codec, e.place) for e in found if e.codec is not None), (None, 0))
    low_rank = next((e.place for e in found if isinstance(e, Exchange) and e.rank), 0)
    blocks = [s.block for body in program.bodies for s in flattened(body.statements) if isinstance(s, Every)]
    elements = int(np.prod(SHAPES[number]))

    def matrix(round: int) -> Any:
        assert topology is not None
        full = torch.zeros(workers, workers, dtype=torch.float64)
        for i in range(workers):
            for j, weight in mixing_weights(topology, workers, round, SEED, i):
                full[i, j] = weight
        return full

    def uniforms(iteration: int, rank: int | None) -> Any:
        who, where = (EVERYONE, place + 1) if rank is None else (rank, place)
        return torch.from_numpy(uniform(message_key(SEED, iteration, where, who), number, elements))

    return Given(
        matrix,
        uniforms,
        lambda count, mean: geometric(SEED, blocks[0], count, mean),
        lambda period: head_start(number, len(SHAPES), period),
        shares(number, elements, codec.layout if codec else Layout(1, ()), workers),
        lambda count: torch.from_numpy(first_q(SEED, low_rank, number, count)),
    )


def uniform(key: int, number: int, count: int) -> Any:
    """The plan's own draws in [0, 1): Wellons' lowbias32 of the element under two keys."""
    key0, key1 = parameter_keys(key, number)

    def mix(h: Any) -> Any:
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x7FEB352D)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0x846CA68B)
        return h ^ (h >> np.uint32(16))

    with np.errstate(over="ignore"):
        bits = mix(mix(np.arange(count, dtype=np.uint32) ^ np.uint32(key0)) + np.uint32(key1))
    return (bits >> np.uint32(8)).astype(np.float64) / 2**24


# --- the tests


def reference(name: str) -> Any:
    return importlib.import_module(f"references.{name}")


def text_of(name: str) -> str:
    settings = getattr(reference(name), "SETTINGS", {})
    arguments = ", ".join(f"{k} = {v}" for k, v in settings.items())
    return f"relax with {name} {{ {arguments} }}" if settings else name


def same(pool: Pool, spec: str, of: Any, settings: dict[str, Any], workers: int) -> None:
    program = program_of(spec)
    momentum = getattr(of, "MOMENTUM", MOMENTUM)
    expected = simulate(of, lambda number: given(program, workers, number), workers, settings)
    for rank, found in enumerate(pool.run(train, workers, spec, momentum)):
        for step, (weights, wanted) in enumerate(zip(found, expected[rank], strict=True)):
            for number, (weight, right) in enumerate(zip(weights, wanted, strict=True)):
                difference = np.abs(weight - right.numpy()).max() / np.abs(right.numpy()).max()
                assert difference < 1e-9, f"rank {rank}, step {step}, parameter {number}: {difference}"


@pytest.mark.parametrize("workers", [1, 2, 3, 4])
@pytest.mark.parametrize("name", [name for name in SPECS if name in KNOWN or name not in WAITING])
def test_a_spec_trains_as_its_paper_says(pool: Pool, name: str, workers: int) -> None:
    assert name in KNOWN, f"write tests/references/{name}.py: an implementation of the paper in plain torch"
    of = reference(name)
    same(pool, text_of(name), of, getattr(of, "SETTINGS", {}), workers)


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("variant", VARIANTS)
def test_and_with_other_arguments(pool: Pool, variant: str, workers: int) -> None:
    spec, name, settings = VARIANTS[variant]
    same(pool, spec, reference(name), settings, workers)


def test_every_reference_has_a_spec_and_nobody_waits_for_what_is_there() -> None:
    assert set(KNOWN) <= set(SPECS), f"references of nothing: {set(KNOWN) - set(SPECS)}"
    assert not WAITING & set(KNOWN), f"they have their references, so take them off WAITING: {WAITING & set(KNOWN)}"


def test_no_reference_imports_relaxc() -> None:
    for path in REFERENCES.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            roots = {name.split(".")[0] for name in names}
            assert roots <= {"__future__", "collections", "dataclasses", "math", "typing", "torch", "references"}, path


def test_a_rule_that_is_slightly_wrong_is_noticed() -> None:
    """The tolerance separates a rule from its neighbours: dpsgd from its adapt-then-combine form."""
    program = program_of("dpsgd")
    one, other = (
        simulate(reference(name), lambda number: given(program, 3, number), 3, {}) for name in ("dpsgd", "dpsgd_atc")
    )
    assert (one[0][-1][0] - other[0][-1][0]).abs().max() > 1e-3
