"""On a card: every kernel gives the CPU's bytes, in messages and in memory, whatever the grid and the addresses. What is
emulated in cuda/test_kernels.py is run here: the card's rounding, its own barriers and shuffles."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from cuda_cases import by_fragments, by_routes, by_specs
from cuda_driven import of_cpus
from cuda_launched import Device, Launched

from relaxc.build.cubins import build_cubin
from relaxc.emit.cuda import emit_cuda

ALL = [*by_routes(), *by_fragments(), *by_specs()]
CHUNKS = 8


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Launched]]:
    architecture = "sm_{}{}".format(*torch.cuda.get_device_capability(0))
    sources = [emit_cuda(ALL[n::CHUNKS]) for n in range(CHUNKS)]
    with ThreadPoolExecutor(CHUNKS) as compilers:
        images = list(compilers.map(lambda s: build_cubin(s[0], architecture).read_bytes(), sources))
    device = Device("libcuda.so.1", "cuda:0")
    cuda = [device.loaded(image, launches) for image, (_, launches) in zip(images, sources, strict=True)]
    return of_cpus(ALL, tmp_path_factory.mktemp("cpu")), {s: one for found in cuda for s, one in found.items()}


@pytest.mark.timeout(600)  # the first one compiles all
@pytest.mark.parametrize("number", range(len(ALL)), ids=[k.symbol for k in ALL])
def test_every_kernel_on_the_card(number: int, both: tuple[dict[str, Any], dict[str, Launched]]) -> None:
    functions, launched = both
    kernel = ALL[number]
    launched[kernel.symbol].gives_what(functions[kernel.symbol], kernel, number, [(1, 0), (7, 1), (64, 3)])
