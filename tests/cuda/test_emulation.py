"""The emulation itself: it computes what CUDA says, shows races, and says what would hang or be undefined on a GPU."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import codecs_by_hand as codecs
import numpy as np
import pytest
from cuda_calls import BACKWARD, FORWARD, SHUFFLED, CudaCall, Emulated, EmulationError, How, compiled
from cuda_cases import ROUTES
from cuda_driven import drawn, of_cuda, same

from relaxc.emit.cuda import Launch, emit_cuda
from relaxc.emit.fuse import build_kernel

THREADS = 64
ALL = "0xFFFFFFFFu"
KERNELS = {
    "reversed_without_barrier": "__shared__ int x[64]; x[t] = t; out[t] = x[63 - t];",
    "reversed_with_barrier": "__shared__ int x[64]; x[t] = t; __syncthreads(); out[t] = x[63 - t];",
    "half_at_a_barrier": "if (t < 32) __syncthreads(); out[t] = t;",
    "at_two_barriers": "if (t < 32) { __syncthreads(); } else {\n __syncthreads(); } out[t] = t;",
    "half_of_a_warp": f"if (t % 2) out[t] = __shfl_xor_sync({ALL}, t, 1);",
    "mask_without_itself": "out[t] = __shfl_xor_sync(0x2u, t, 1);",
    "lane_without_mask": "if (t % 2) out[t] = __shfl_sync(0xAAAAAAAAu, t, 0);",
    "odd_lanes": "if (t % 2) out[t] = __shfl_sync(0xAAAAAAAAu, t, 31);",
    "unset": "__shared__ int x[64]; out[t] = x[t];",
    "exchanged": f"out[t] = __shfl_xor_sync({ALL}, t, 5);",
    "from_above": f"out[t] = __shfl_down_sync({ALL}, t, 3);",
    "from_below": f"out[t] = __shfl_up_sync({ALL}, t, 3);",
    "from_lane": f"out[t] = __shfl_sync({ALL}, t, 7);",
    "voted": f"out[t] = int(__ballot_sync({ALL}, t % 3 == 0));",
    "any": f"out[t] = __any_sync({ALL}, t == 40) + 2 * __popc(7u);",
    "counted": "atomicAdd(&out[t % 2], 1);",
    "where": "out[t] = int(blockIdx.x * 1000 + blockDim.x + gridDim.x * 100000);",
}
HANGS = {
    "half_at_a_barrier": "thread 0 is at __syncthreads",
    "at_two_barriers": "they wait for each other",
    "half_of_a_warp": "is at its end",
    "mask_without_itself": "the mask of thread 0 does not name it",
    "lane_without_mask": "reads lane 0, which the mask does not name",
}
THE_PLACE = "small.cu:"
LANE = np.arange(THREADS) % 32
FIRST = np.arange(THREADS) - LANE
EXPECTED: dict[str, Callable[[], Any]] = {
    "reversed_with_barrier": lambda: np.arange(THREADS)[::-1],
    "odd_lanes": lambda: np.where(LANE % 2, FIRST + 31, 0),
    "unset": lambda: np.full(THREADS, -1),
    "exchanged": lambda: FIRST + (LANE ^ 5),
    "from_above": lambda: FIRST + np.where(LANE + 3 < 32, LANE + 3, LANE),
    "from_below": lambda: FIRST + np.where(LANE >= 3, LANE - 3, LANE),
    "from_lane": lambda: FIRST + 7,
    "voted": lambda: [_bits(f) for f in FIRST],
    "any": lambda: np.where(FIRST == 32, 1, 0) + 6,
    "counted": lambda: [32, 32, *[0] * 62],
    "where": lambda: np.full(THREADS, 64 + 100000),
}


def _bits(first: int) -> int:
    return int(np.array(sum(1 << lane for lane in range(32) if (first + lane) % 3 == 0), np.uint32).astype(np.int32))


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Any:
    opening = "int* out = reinterpret_cast<int*>(call.output); const int t = int(threadIdx.x);"
    functions = [
        f'extern "C" __global__ void {name}(relaxrt_cuda_call call) {{ {opening} {text} }}\n'
        for name, text in KERNELS.items()
    ]
    return compiled("\n".join(functions), tmp_path_factory.mktemp("emulation") / "small.so")


def run(library: Any, name: str, order: int, grid: int = 1) -> Any:
    out = np.zeros(THREADS, np.int32)
    call = CudaCall(output=out.ctypes.data)
    Emulated(library, Launch(name, THREADS, None, False, 0, 4, ())).run(call, How(grid, order))
    return out


@pytest.mark.parametrize("order", [FORWARD, BACKWARD, SHUFFLED])
@pytest.mark.parametrize("name", list(EXPECTED))
def test_it_computes_what_cuda_says(library: Any, name: str, order: int) -> None:
    assert (run(library, name, order) == np.asarray(EXPECTED[name]())).all()


def test_a_race_shows_in_the_order_of_threads(library: Any) -> None:
    made = {run(library, "reversed_without_barrier", order).tobytes() for order in (FORWARD, BACKWARD, SHUFFLED)}
    assert len(made) > 1


@pytest.mark.parametrize("order", [FORWARD, BACKWARD, SHUFFLED])
@pytest.mark.parametrize("name", list(HANGS))
def test_what_would_hang_or_is_undefined_is_an_error(library: Any, name: str, order: int) -> None:
    said = HANGS[name] if order == FORWARD else THE_PLACE
    with pytest.raises(EmulationError, match=re.escape(said)):
        run(library, name, order)
    assert (run(library, "exchanged", order) == FIRST + (LANE ^ 5)).all()  # and the next kernel runs


def test_blocks_of_a_grid_run_one_after_the_other(library: Any) -> None:
    assert (run(library, "counted", FORWARD, grid=5)[:2] == 160).all()
    assert (run(library, "where", FORWARD, grid=3) == 2000 + 64 + 300000).all()


# --- barriers of generated kernels


MARK = "__syncthreads();"
SYMBOL = "mutant"
MUTANTS = [(codecs.minmax(8, 512), 0, 2), (codecs.onebit(512), 1, 3)]
"""Codec, route and barriers."""


@pytest.mark.parametrize(("codec", "route", "barriers"), MUTANTS, ids=["minmax", "onebit"])
def test_no_barrier_of_a_kernel_can_be_left_out(codec: Any, route: int, barriers: int, tmp_path: Path) -> None:
    kernel = build_kernel(SYMBOL, codec, ROUTES[route], "f32")
    source, (launch,) = emit_cuda([kernel])
    parts = source.split(MARK)
    given = drawn(kernel, launch, 1)
    ways = [How(1, order, 1, seed) for order in (FORWARD, BACKWARD) for seed in (1,)]
    ways += [How(1, SHUFFLED, 1, seed) for seed in range(6)]
    whole = Emulated(compiled(source, tmp_path / "whole.so"), launch)
    wanted = of_cuda(whole, given, ways[0])
    assert all(_equal(of_cuda(whole, given, how), wanted) for how in ways)
    assert len(parts) - 1 == barriers
    for left_out in range(barriers):
        text = MARK.join(parts[: left_out + 1]) + MARK.join(["", *parts[left_out + 1 :]])[len(MARK) :]
        mutant = Emulated(compiled(text, tmp_path / f"mutant_{left_out}.so"), launch)
        assert not all(_equal(of_cuda(mutant, given, how), wanted) for how in ways), left_out


def _equal(a: Any, b: Any) -> bool:
    return a[0] == b[0] and all(map(same, a[1], b[1]))
