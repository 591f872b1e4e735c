"""The text of the CUDA kernels, run by the emulation, against the CPU's kernels: the same bytes in messages and memory,
whatever the grid, the order of threads and the addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import codecs_by_hand as codecs
import pytest
from cuda_calls import BACKWARD, FORWARD, SHUFFLED, Emulated, How, emulated
from cuda_cases import ROUTES, by_fragments, by_routes, by_specs
from cuda_driven import Drawn, drawn, every, of_cpu, of_cpus, of_cuda, same
from kernel_calls import Part

from relaxc.emit.fuse import build_kernel

ALL = [*by_routes(), *by_fragments(), *by_specs()]
WAYS = [
    (How(1, FORWARD, 0), How(3, SHUFFLED, 1, 7)),
    (How(2, BACKWARD, 0), How(64, SHUFFLED, 3, 5)),
    (How(3, SHUFFLED, 0, 3), How(7, BACKWARD, 1)),
]
"""Grids of one block, some, and more than there are; aligned and not."""


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], dict[str, Emulated]]:
    where = tmp_path_factory.mktemp("cuda")
    return of_cpus(ALL, where), emulated(ALL, where)


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


OF_ROUTES = ALL[: len(by_routes())]
STARTS = (How(2, FORWARD, 0), How(3, BACKWARD, 1), How(5, SHUFFLED, 3, 11))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", range(len(OF_ROUTES)), ids=[k.symbol for k in OF_ROUTES])
def test_codecs_at_every_length_and_start_with_every_special_number(
    number: int, both: tuple[dict[str, Any], dict[str, Emulated]]
) -> None:
    """All combinations, for each codec and block size."""
    kernel, (functions, cuda) = OF_ROUTES[number], both
    of_it = cuda[kernel.symbol]
    given = drawn(kernel, of_it.launch, number, every(kernel))
    message, memory = of_cpu(functions[kernel.symbol], given)
    for how in STARTS:
        made, held = of_cuda(of_it, given, how)
        assert made == message, how
        assert all(map(same, held, memory)), how


# --- numbers beyond 32 bits

FAR = 1 << 26
"""Blocks before the one at hand, so that elements and bytes are numbered beyond 2^32."""


@pytest.mark.parametrize("route", [0, 3])
def test_blocks_behind_2_to_the_32nd_element_are_as_others(route: int, tmp_path: Path) -> None:
    """The segment's addresses, and the message's, are moved back by as much as its blocks lie behind its beginning."""
    kernel = build_kernel("far", codecs.minmax(8, 96), ROUTES[route], "f32")
    one = emulated([kernel], tmp_path, 1)["far"]
    given = drawn(kernel, one.launch, 3)
    at = next(n for n, part in enumerate(given.parts) if part.elements == 1031)
    whole = given.parts[at]
    before = sum(one.launch.bytes_of(p.elements) for p in given.parts[:at])
    messages = [m[before : before + one.launch.bytes_of(1031)] for m in given.messages]
    size = None if given.size is None else one.launch.bytes_of(1031)
    near = Drawn([Part(whole.operands, 1031, 0, 5)], messages, size, None, [], None)
    assert FAR * 96 > 2**32
    assert _bytes(of_cuda(one, near, How(2, far=FAR))) == _bytes(of_cuda(one, near, How(2)))


def _bytes(made: tuple[bytes, list[Any]]) -> tuple[bytes, list[bytes]]:
    return made[0], [a.tobytes() for a in made[1]]
