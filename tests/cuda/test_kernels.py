"""The text of the CUDA kernels, run by the emulation, against the CPU's kernels: the same bytes in messages and memory,
whatever the grid, the order of threads and the addresses."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from cuda_calls import BACKWARD, FORWARD, SHUFFLED, Emulated, How, emulated
from cuda_cases import by_fragments, by_routes, by_specs
from cuda_driven import drawn, of_cpu, of_cuda, same

from relaxc.emit.cpu import emit_kernels
from relaxc.emit.kernel import BlockKernel
from relaxc.resources import folder

ALL = [*by_routes(), *by_fragments(), *by_specs()]
FLAGS = ("-std=c++17", "-O1", "-ffp-contract=off", "-fno-math-errno", "-fPIC", "-shared", "-w")
WAYS = [
    (How(1, FORWARD, 0), How(3, SHUFFLED, 1, 7)),
    (How(2, BACKWARD, 0), How(1000, SHUFFLED, 3, 5)),
    (How(3, SHUFFLED, 0, 3), How(7, BACKWARD, 1)),
]
"""Grids of one block, some, and more than there are; aligned and not."""


def of_cpus(kernels: list[BlockKernel], where: Path) -> Any:
    """The CPU's functions. Not as a plan compiles them: their bits are the same, and this takes a tenth of the time."""
    where.with_suffix(".cpp").write_text(emit_kernels(kernels))
    command = ["g++", *FLAGS, f"-I{folder('runtime')}", str(where.with_suffix(".cpp")), "-o", str(where)]
    subprocess.run(command, check=True, timeout=280)
    return ctypes.CDLL(str(where))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Emulated]]:
    where = tmp_path_factory.mktemp("cuda")
    halves = [ALL[k::2] for k in range(2)]
    with ThreadPoolExecutor(2) as compilers:
        libraries = list(compilers.map(of_cpus, halves, [where / f"cpu_{k}.so" for k in range(2)]))
    functions = {k.symbol: lib[k.symbol] for lib, half in zip(libraries, halves, strict=True) for k in half}
    return functions, emulated(ALL, where)


@pytest.mark.timeout(600)  # the first one compiles all
@pytest.mark.parametrize("number", range(len(ALL)), ids=[k.symbol for k in ALL])
def test_both_targets_give_the_same_bytes(number: int, both: tuple[dict[str, Any], dict[str, Emulated]]) -> None:
    kernel, (functions, cuda) = ALL[number], both
    of_it = cuda[kernel.symbol]
    given = drawn(kernel, of_it.launch, number)
    message, memory = of_cpu(functions[kernel.symbol], given)
    for how in WAYS[number % len(WAYS)]:
        made, held = of_cuda(of_it, given, how)
        assert made == message, how
        assert all(map(same, held, memory)), how
