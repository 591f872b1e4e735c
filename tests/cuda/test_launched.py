"""What launches kernels one by one on a card (gpu/test_kernels.py), on the tests' own driver: every eighth kernel, so that
on a card a difference is the card's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from cuda_calls import compiled
from cuda_cases import by_routes
from cuda_driven import of_cpus
from cuda_launched import Arena, Device, Launched
from fake_cuda import fake_driver

from relaxc.emit.cuda import emit_cuda

SOME = by_routes()[::8]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Launched]]:
    where = tmp_path_factory.mktemp("launched")
    source, launches = emit_cuda(SOME)
    library = where / "kernels.so"
    compiled(source, library)
    device = Device(fake_driver(where), "cpu")
    return of_cpus(SOME, where), device.loaded(str(library).encode() + b"\0", launches)


@pytest.mark.parametrize("number", range(len(SOME)), ids=[k.symbol for k in SOME])
def test_one_by_one(number: int, both: tuple[dict[str, Any], dict[str, Launched]]) -> None:
    functions, launched = both
    kernel = SOME[number]
    launched[kernel.symbol].gives_what(functions[kernel.symbol], kernel, number, [(1, 0), (5, 1)])


def test_what_is_written_behind_an_array_is_seen() -> None:
    memory = torch.empty(4096, dtype=torch.uint8)
    arena = Arena(memory)
    end = arena.put(np.arange(5.0)) + 40
    arena.send()
    arena.fetch()
    assert arena.gap(end)
    memory[end - memory.data_ptr()] = 1
    arena.fetch()
    assert not arena.gap(end)
