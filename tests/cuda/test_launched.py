"""What launches kernels one by one on a card (gpu/test_kernels.py), on the tests' own driver: every eighth kernel, so that
on a card a difference is the card's."""

from __future__ import annotations

from typing import Any

import pytest
from cuda_calls import compiled
from cuda_cases import by_routes
from cuda_driven import drawn, of_cpu, of_cpus, same
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
    symbol = SOME[number].symbol
    launched = both[1][symbol]
    given = drawn(SOME[number], launched.launch, number)
    message, memory = of_cpu(both[0][symbol], given)
    for grid, skew in ((1, 0), (5, 1)):
        made, held = launched(given, grid, skew)
        assert made == message
        assert all(map(same, held, memory))


def test_what_is_written_behind_an_array_is_seen(both: tuple[dict[str, Any], dict[str, Launched]]) -> None:
    import numpy as np
    import torch

    memory = torch.empty(4096, dtype=torch.uint8)
    arena = Arena(memory)
    end = arena.put(np.arange(5.0)) + 40
    arena.send()
    arena.fetch()
    assert arena.gap(end)
    memory[end - memory.data_ptr()] = 1
    arena.fetch()
    assert not arena.gap(end)
