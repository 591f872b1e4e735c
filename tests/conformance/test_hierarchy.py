"""Exchanges over machines on real workers, to the bit what the interpreter says, for every way to deal the workers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from conformance import test_plans as plans
from conformance import test_programs as programs
from pool import Pool, WorkerError

from relaxc.wire.machines import hierarchy
from relaxc.wire.routes import Send

INNERS = [(1, 1), (2, 1), (2, 2), (4, 1), (4, 2), (4, 4), (6, 2), (6, 3)]
"""(workers, of which on each machine)"""
GRADIENTS = {
    "worker": "relax gradients { route = hierarchy%s, compress = 8bit, feedback = worker }",
    "both": "relax gradients { topology = hierarchy%s, compress = 1bit, feedback = both }",
    "none": "relax gradients { route = hierarchy%s, compress = minmax(4, block = 100), feedback = none }",
    "stochastic": "relax gradients { route = hierarchy%s, compress = minmax(8, rounding = stochastic), delay = 1 }",
    "exact": "relax gradients { route = hierarchy%s }",
}
PROGRAMS = {
    "mean": """
algorithm a { state seen = weight  step  every 2 {
  let moved = mean(weight - seen, compress = 4bit, feedback = both, route = hierarchy%s)  seen += moved  weight = seen } }
relax with a
""",
    "sum": """
algorithm b { step
  every 2 { weight = sum(weight / workers, compress = 8bit, feedback = worker, route = hierarchy%s) } }
relax with b
""",
    "late": "relax updates { every = 4, compress = 8bit, delay = 2, route = hierarchy%s }",
    "exact": "algorithm c { step  every 2 { weight = mean(weight, route = hierarchy%s) } }\nrelax with c",
}
MIXES = {
    "ring": "relax weights { topology = hierarchy(ring%s) }",
    "pairs": "algorithm d { step  weight = mix(weight, hierarchy(random_pairs%s)) * (1 - own(hierarchy(ring%s)) / 1e3) }\n"
    "relax with d",
    "choco": "relax with choco { compress = 4bit, topology = hierarchy(lazy(ring)%s), gamma = 0.3 }",
}


def written(text: str, inner: int, behind: str = "") -> str:
    """`behind` is what stands in front of `inner` in the brackets."""
    return text.replace("%s", f", inner = {inner}" if behind else f"(inner = {inner})")


@pytest.mark.parametrize(("workers", "inner"), INNERS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(pool: Pool, name: str, workers: int, inner: int) -> None:
    spec = written(GRADIENTS[name], inner)
    answers = pool.run(plans.train, workers, spec)
    expected, interpreter = plans.interpreted(spec, workers)
    for rank, (results, state, (sent, predicted, done)) in enumerate(answers):
        assert sent == predicted * done, "bytes on the wire are not the plan's"
        for iteration in range(plans.ITERATIONS):
            for p in plans.PARAMETERS:
                found, wanted = results[iteration][p.name], expected[iteration][rank][p.number]
                plans.same_gradient(found, wanted, True, f"{p.name} at {iteration}")
        plans.same_residuals(state, interpreter, rank, workers)
        if name in ("worker", "both") and inner < workers:
            assert any(key.startswith("residual/") and value.any() for key, value in state.items())


@pytest.mark.parametrize(("workers", "inner"), INNERS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(pool: Pool, name: str, workers: int, inner: int) -> None:
    as_the_interpreter(pool, written(PROGRAMS[name], inner), workers)


@pytest.mark.parametrize(("workers", "inner"), INNERS)
@pytest.mark.parametrize("name", MIXES)
def test_mixes(pool: Pool, name: str, workers: int, inner: int) -> None:
    as_the_interpreter(pool, written(MIXES[name], inner, "topology"), workers)


def as_the_interpreter(pool: Pool, spec: str, workers: int) -> None:
    answers = pool.run(programs.train, workers, spec, programs.MOMENTUM)
    wanted, interpreter = programs.interpreted(spec, workers, programs.MOMENTUM)
    for rank, (seen, state, (sent, predicted, _)) in enumerate(answers):
        assert sent == predicted, "bytes on the wire are not the plan's"
        for iteration in range(programs.ITERATIONS):
            for p in programs.PARAMETERS:
                where = f"rank {rank}, {p.name} after iteration {iteration}"
                programs.same(seen[iteration][p.name], wanted[iteration][rank][p.number], True, p, where)
        programs.same_states(state, interpreter, rank, True)


# --- as torchrun says


@contextmanager
def torchrun(rank: int, sizes: list[int], numbers: list[int] | None = None) -> Iterator[None]:
    """What torchrun tells a worker; `sizes` are LOCAL_WORLD_SIZE by rank."""
    told = {"LOCAL_WORLD_SIZE": str(sizes[rank])} if sizes else {}
    told |= {"LOCAL_RANK": str(numbers[rank])} if numbers else {}
    os.environ.update(told)
    try:
        yield
    finally:
        for name in told:
            del os.environ[name]


def train_under(
    rank: int, workers: int, spec: str, sizes: list[int], numbers: list[int] | None = None
) -> tuple[Any, list[str]]:
    import warnings

    with torchrun(rank, sizes, numbers), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        return plans.train(rank, workers, spec), [str(w.message) for w in told]


@pytest.mark.parametrize("name", ["worker", "exact"])
def test_two_hosts_of_two(pool: Pool, name: str) -> None:
    """Left open, the workers of a machine are torchrun's; the interpreter is told them."""
    answers = pool.run(train_under, 4, GRADIENTS[name].replace("%s", ""), [2] * 4, [0, 1, 0, 1])
    expected, _ = plans.interpreted(written(GRADIENTS[name], 2), 4)
    for rank, ((results, _state, _bytes), told) in enumerate(answers):
        assert told == []
        for iteration in range(plans.ITERATIONS):
            for p in plans.PARAMETERS:
                found, wanted = results[iteration][p.name], expected[iteration][rank][p.number]
                plans.same_gradient(found, wanted, True, f"{p.name} at {iteration}")


def mix_under(rank: int, workers: int, spec: str, sizes: list[int]) -> Any:
    with torchrun(rank, sizes):
        return programs.train(rank, workers, spec, programs.MOMENTUM)


def test_a_mix_of_two_hosts_of_two(pool: Pool) -> None:
    answers = pool.run(mix_under, 4, MIXES["ring"].replace("%s", ""), [2] * 4)
    wanted, _ = programs.interpreted(written(MIXES["ring"], 2, "topology"), 4, programs.MOMENTUM)
    for rank, (seen, _state, _bytes) in enumerate(answers):
        for p in programs.PARAMETERS:
            programs.same(seen[-1][p.name], wanted[-1][rank][p.number], True, p, p.name)


@pytest.mark.parametrize("numbers", [None, [0, 1]])
def test_without_torchrun_each_worker_is_a_machine_and_hears_so(pool: Pool, numbers: Any) -> None:
    answers = pool.run(train_under, 2, GRADIENTS["worker"].replace("%s", ""), [], numbers)
    told = [told for _results, told in answers]
    assert len(told[0]) == 1 and told[0][0].startswith("LOCAL_WORLD_SIZE is not set") and told[1] == []


@pytest.mark.parametrize(
    ("spec", "sizes", "numbers", "what"),
    [
        ("", [3] * 4, None, "RX0630.*4 workers are not a whole number of machines with 3 workers each"),
        ("(inner = 3)", [2] * 4, None, "RX0630.*4 workers are not a whole number of machines with 3 workers each"),
        ("", [2, 2, 1, 1], None, "RX0601.*workers of a machine = 2, rank 2 has workers of a machine = 1"),
        ("", [2] * 4, [0, 0, 1, 1], r"RX0630.*rank \d is number \d on its machine, and hierarchy takes it for"),
        ("", ["two"] * 4, None, "RX0630.*LOCAL_WORLD_SIZE is 'two'"),
    ],
)
def test_workers_that_are_no_machines(pool: Pool, spec: str, sizes: list[Any], numbers: Any, what: str) -> None:
    with pytest.raises(WorkerError, match=what):
        pool.run(train_under, 4, GRADIENTS["worker"].replace("%s", spec), sizes, numbers)


def test_a_mix_of_workers_that_are_no_machines(pool: Pool) -> None:
    with pytest.raises(WorkerError, match=r"RX0608.*4 workers are not a whole number of machines with 3 workers each"):
        pool.run(programs.train, 4, written(MIXES["ring"], 3, "topology"), 0.0)


def test_every_worker_sends_as_much() -> None:
    counts = [sum(isinstance(m, Send) for phase in hierarchy(2).phases(r, 6) for m in phase) for r in range(6)]
    assert len(set(counts)) == 1
