"""Runs of tests/references/: a spec's reference on simulated workers, with what relaxc draws and is configured with injected."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from references.harness.team import Given, Setup, setup, simulate

from relaxc import pipeline
from relaxc.emit.plan import SEED
from relaxc.language.source import Source
from relaxc.program.drawn import chosen
from relaxc.program.ir import Assign, Encode, Every, Exchange, Let, Program, flattened, within
from relaxc.resources import folder
from relaxc.topology.weights import weights as mixing_weights
from relaxc.wire.dither import EVERYONE, message_key, parameter_keys, shared_key
from relaxc.wire.draws import geometric, head_start
from relaxc.wire.layout import Layout
from relaxc.wire.low_rank import first_q
from relaxc.wire.ownership import shares

Weights = list[list[list[Any]]]
"""By worker, step and parameter."""


def reference(name: str) -> Any:
    return importlib.import_module(f"references.{name}")


def text_of(name: str) -> str:
    """The spec's own text, with what its reference sets."""
    settings = getattr(reference(name), "SETTINGS", {})
    if not settings:
        return name
    use, arguments = f"relax with {name}", ", ".join(f"{k} = {v}" for k, v in settings.items())
    assert shipped(name).count(use) == 1
    return shipped(name).replace(use, f"{use} {{ {arguments} }}")


def with_links(text: str, links: str, folder: Path) -> str:
    path = folder / "links.txt"
    path.write_text(links)
    return text.replace("LINKS", str(path))


def simulated(spec: str, of: Any, settings: dict[str, Any], workers: int) -> list[list[list[Any]]]:
    program, what = program_of(spec), setup(of)
    return simulate(of, lambda number: given(program, workers, number, what), workers, settings)


def close(found: Weights, wanted: Weights) -> None:
    """To 1e-9, relative to the largest weight."""
    for rank, (mine, right) in enumerate(zip(found, wanted, strict=True)):
        for step, (weights, expected) in enumerate(zip(mine, right, strict=True)):
            for number, (a, b) in enumerate(zip(weights, expected, strict=True)):
                difference = np.abs(a - b.numpy()).max() / np.abs(b.numpy()).max()
                assert difference < 1e-9, f"rank {rank}, step {step}, parameter {number}: {difference}"


# --- what is injected


def program_of(spec: str) -> Program:
    return pipeline.to_program(pipeline.to_spec(Source("spec", spec if " " in spec else shipped(spec)), {}))


def shipped(name: str) -> str:
    return (folder("specs") / f"{name}.relax").read_text()


def exchanges(program: Program) -> Iterator[Exchange | Encode]:
    for body in program.bodies:
        for statement in flattened(body.statements):
            if isinstance(statement, Let | Assign):
                yield from (e for e in within(statement.value) if isinstance(e, Exchange | Encode))


def given(program: Program, workers: int, number: int, of: Setup) -> Given:
    import torch

    found = list(exchanges(program))
    topology = next((e.topology for e in found if isinstance(e, Exchange) and e.topology is not None), None)
    codec, place = next(((e.codec, e.place) for e in found if e.codec is not None), (None, 0))
    low_rank = next((e.place for e in found if isinstance(e, Exchange) and e.rank), 0)
    blocks = [s.block for body in program.bodies for s in flattened(body.statements) if isinstance(s, Every)]
    elements = int(np.prod(of.shapes[number]))

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

    def places(iteration: int, block: int) -> list[int]:
        keys = parameter_keys(shared_key(SEED, iteration), number)
        numbers = np.arange(-(-elements // block), dtype=np.uint64)
        drawn = [int(n * block + place) for n, place in enumerate(chosen(numbers, keys, block))]
        return [place for place in drawn if place < elements]

    return Given(
        matrix,
        uniforms,
        places,
        lambda count, mean: geometric(SEED, blocks[0], count, mean),
        lambda period: head_start(sum(map(prod, of.shapes[:number])), sum(map(prod, of.shapes)), period),
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
